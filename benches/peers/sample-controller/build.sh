#!/bin/sh
# Builds the published sample-controller, with the limits of its client off, as
# target/bench-sample-controller. README.md says why there is a patch.
set -eu
cd "$(dirname "$0")"

module=k8s.io/sample-controller
version=v0.36.4
sum=h1:UO1Uc95NuSbX2xFonbqqOF76wASEmNRPnN3KyoWAvCM=

published=$(go mod download -json "$module@$version")
field() { printf '%s\n' "$published" | sed -n "s/^[[:space:]]*\"$1\": \"\(.*\)\",*$/\1/p"; }
if [ "$(field Sum)" != "$sum" ]; then
	echo "$module@$version is not the module it was: $(field Sum)" >&2
	exit 1
fi

rm -rf target/source
mkdir -p target/source
cp -R "$(field Dir)/." target/source
chmod -R u+w target/source
patch --batch --strip=1 --directory=target/source <limits-off.patch
# Its own go.mod and go.sum choose what it is built with.
cd target/source
go build -o ../bench-sample-controller .
