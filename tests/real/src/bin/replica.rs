//! A replica that Pintle elects and that writes while it leads: the counterpart of `elector`, which
//! uses client-go.
//!
//! With its gated client it creates a ConfigMap named `<identity>.<number>` every few
//! milliseconds. On SIGTERM it stops writing, releases the Lease and exits. It also exits when its
//! standard input is closed, so that it does not outlive the test.
//!
//! It prints "following" when it knows the leader, and "ended" when its term has ended and it has
//! stopped writing.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::{collections::BTreeMap, error::Error, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use pintle::{
    clock::Clock,
    leader_election::{LeaderElection, Leadership, Term},
    signals,
};

/// The flags, `--name=value`. Those that `elector` has too have the same names.
struct Flags(BTreeMap<String, String>);

impl Flags {
    fn parse() -> Self {
        let flag = |argument: String| {
            let (name, value) = argument.strip_prefix("--")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Self(std::env::args().skip(1).filter_map(flag).collect())
    }

    fn text(&self, name: &str) -> Result<&str, String> {
        let value = self.0.get(name).map(String::as_str);
        value.ok_or_else(|| format!("flag --{name} is missing"))
    }

    /// Returns a flag that is a duration such as `500ms`.
    fn duration(&self, name: &str) -> Result<Duration, Box<dyn Error>> {
        let millis = self.text(name)?.trim_end_matches("ms").parse()?;
        Ok(Duration::from_millis(millis))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(2);
    });
    let shutdown = signals::shutdown_on_signal()?;

    let kubeconfig = Kubeconfig::read_from(flags.text("kubeconfig")?)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    flags
        .text("namespace")?
        .clone_into(&mut config.default_namespace);
    let client = pintle::client::build(config, "replica")?;
    let (system, skew) = (
        Clock::system(),
        flags.text("skew")?.parse::<jiff::SignedDuration>()?,
    );
    let mut elector = LeaderElection::new(client.clone(), flags.text("lease")?)
        .identity(flags.text("identity")?)
        .lease_duration(flags.duration("lease-duration")?)
        .renew_deadline(flags.duration("renew-deadline")?)
        .retry_period(flags.duration("retry-period")?)
        .clock(Clock::from_fn(move || system.now() + skew))
        .build()?;

    let mut writer = Writer {
        maps: Api::default_namespaced(elector.leadership().gate(&client)),
        identity: elector.identity().to_owned(),
        pause: flags.duration("pause")?,
        number: 0,
    };
    tokio::spawn(follow(elector.leadership().clone()));
    while let Some(term) = elector.acquire(&shutdown).await {
        writer.run(&term).await;
        term.resign().await;
        println!("ended");
    }
    Ok(())
}

async fn follow(leadership: Leadership) {
    if leadership.leader().is_none() {
        leadership.new_leader().await;
    }
    println!("following");
}

struct Writer {
    maps: Api<ConfigMap>,
    identity: String,
    pause: Duration,
    number: u64,
}

impl Writer {
    /// Writes until the term ends. No write is in flight when this returns.
    async fn run(&mut self, term: &Term) {
        while !term.ended().is_cancelled() {
            self.number += 1;
            let mut object = ConfigMap::default();
            object.metadata.name = Some(format!("{}.{}", self.identity, self.number));
            if let Err(error) = self.maps.create(&PostParams::default(), &object).await {
                eprintln!("cannot write {}: {error}", self.number);
            }
            // Does not check for the end of the term, so that the gate alone stops the writes.
            tokio::time::sleep(self.pause).await;
        }
    }
}
