//! Embeds the version of kube from Cargo.lock.

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    let version = lock
        .split("[[package]]")
        .filter(|package| package.contains("\nname = \"kube\"\n"))
        .find_map(|package| package.split("\nversion = \"").nth(1)?.split('"').next());
    println!(
        "cargo::rustc-env=KUBE_VERSION={}",
        version.unwrap_or("unknown")
    );
}
