//! Cargo only considers the build dependencies of packages with a build script.

fn main() {}
