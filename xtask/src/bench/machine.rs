//! Describes the machine, toolchain and commit of a measurement.

use std::process::Command;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) kernel: String,
    pub(super) rustc: String,
    pub(super) go: String,
}

impl Machine {
    pub(super) fn this() -> Self {
        let read = |file| std::fs::read_to_string(file).unwrap_or_default();
        let after_colon = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let memory = after_colon(&read("/proc/meminfo"), "MemTotal");
        let memory: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
        Self {
            cpu: after_colon(&read("/proc/cpuinfo"), "model name"),
            cores: cores(),
            memory_gib: memory.div_ceil(1 << 20),
            kernel: said("uname", &["-sr"]),
            rustc: said("rustc", &["--version"]),
            go: said("go", &["version"])
                .trim_start_matches("go version ")
                .to_owned(),
        }
    }
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the date and the checked-out commit, marked if the working tree is dirty.
pub(super) fn now() -> (String, String) {
    let commit = said("git", &["describe", "--always", "--dirty", "--abbrev=10"]);
    (said("date", &["-u", "+%Y-%m-%d"]), commit)
}

fn said(program: &str, args: &[&str]) -> String {
    let out = Command::new(program)
        .args(args)
        .current_dir(crate::workspace::root())
        .output();
    let text = out.ok().filter(|out| out.status.success());
    let text = text.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".into())
}
