#!/bin/sh
# Builds the published sample-controller without client-side rate limits, as
# target/bench-sample-controller. README.md explains the patch.
set -eu
cd "$(dirname "$0")"

module=k8s.io/sample-controller
version=v0.36.4
sum=h1:UO1Uc95NuSbX2xFonbqqOF76wASEmNRPnN3KyoWAvCM=

published=$(go mod download -json "$module@$version")
field() { printf '%s\n' "$published" | sed -n "s/^[[:space:]]*\"$1\": \"\(.*\)\",*$/\1/p"; }
if [ "$(field Sum)" != "$sum" ]; then
	echo "unexpected checksum of $module@$version: $(field Sum)" >&2
	exit 1
fi

rm -rf target/source
mkdir -p target/source
cp -R "$(field Dir)/." target/source
chmod -R u+w target/source
patch --batch --strip=1 --directory=target/source <limits-off.patch
# Use its own go.mod and go.sum.
cd target/source
go build -o ../bench-sample-controller .
