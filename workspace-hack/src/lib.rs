//! Empty: this package only enables features, see its `Cargo.toml`.
