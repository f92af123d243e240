# The sample controller as a container image: a static binary and nothing else, built without the
# embedded cluster.
#   docker build -t sample-controller:0.1.0 .
FROM rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY benches benches
COPY crates crates
COPY examples examples
COPY tests tests
COPY workspace-hack workspace-hack
COPY xtask xtask
RUN cargo build --release --locked --package sample-controller --no-default-features

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/target/release/sample-controller /sample-controller
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/sample-controller"]
