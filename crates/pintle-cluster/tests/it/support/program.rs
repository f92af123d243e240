//! Runs the program `pintle-cluster`.

use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// How long the program may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The running program. Dropping it kills it.
pub struct Program {
    child: Child,
    /// Its output until it was ready.
    pub greeting: String,
    pub kubeconfig: PathBuf,
}

impl Program {
    /// Starts the program and waits until it has printed its usage hints.
    pub fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pintle-cluster"));
        command.args(options);
        Self::spawn(command)
    }

    /// Like [`start`](Self::start), for a command line that ends with the program.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("Ctrl-C") {
            let read = output.read_line(&mut greeting).unwrap();
            assert!(read > 0, "exited: {greeting}");
        }
        // Keep reading, because a closed pipe would fail its next write.
        thread::spawn(move || output.read_to_string(&mut String::new()));
        let export = greeting.lines().find_map(|line| {
            let line = line.trim();
            line.strip_prefix("export KUBECONFIG=")
        });
        let kubeconfig = PathBuf::from(export.unwrap());
        Self {
            child,
            greeting,
            kubeconfig,
        }
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `INT` for Ctrl-C.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", signal, &pid])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Sends a signal and waits for the exit.
    pub async fn stop(mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "still running after SIG{signal}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
