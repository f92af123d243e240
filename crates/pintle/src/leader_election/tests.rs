//! The rules of the election, without a server.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::Instant;

use super::lease::{Claim, Observed, released};

const LEASE: Duration = Duration::from_secs(15);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A claim by `a`, two seconds after it last saw the Lease change.
fn claim(now: Timestamp) -> Claim<'static> {
    Claim {
        identity: "a",
        lease_duration: LEASE,
        now,
        unchanged: Duration::from_secs(2),
    }
}

fn held(by: &str, renewed: i64) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(by.to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time: Some(MicroTime(at(100))),
        renew_time: Some(MicroTime(at(renewed))),
        lease_transitions: Some(3),
        strategy: Some("OldestEmulationVersion".to_owned()),
        preferred_holder: Some("c".to_owned()),
    }
}

#[test]
fn new_lease_has_no_transitions() {
    let spec = claim(at(7)).over(None);
    let expected = LeaseSpec {
        holder_identity: Some("a".to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time: Some(MicroTime(at(7))),
        renew_time: Some(MicroTime(at(7))),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    assert_eq!(spec, expected);
}

#[test]
fn renewal_changes_the_renew_time_alone() {
    let spec = claim(at(112)).over(Some(held("a", 110)));
    assert_eq!(spec, held("a", 112));
}

#[test]
fn takeover_counts_a_transition() {
    for before in [
        held("b", 110),
        released(held("b", 110), at(111)),
        LeaseSpec::default(),
    ] {
        let transitions = before.lease_transitions.unwrap_or(0);
        let spec = claim(at(200)).over(Some(before));
        assert_eq!(spec.lease_transitions, Some(transitions + 1));
        assert_eq!(spec.acquire_time, Some(MicroTime(at(200))));
    }
}

#[test]
fn release_retains_transitions_and_foreign_fields() {
    let spec = released(held("a", 110), at(120));
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_duration_seconds, Some(1));
    assert_eq!(spec.lease_transitions, Some(3));
    assert_eq!(spec.strategy, held("a", 110).strategy);
    assert_eq!(spec.preferred_holder, held("a", 110).preferred_holder);
}

#[test]
fn takeover_retains_foreign_fields() {
    let spec = claim(at(200)).over(Some(held("b", 110)));
    assert_eq!(spec.strategy, held("b", 110).strategy);
    assert_eq!(spec.preferred_holder, held("b", 110).preferred_holder);
}

#[test]
fn renew_time_is_the_wall_clocks() {
    // The clock may be set back, and renewals may be less than a second apart.
    for (unchanged, now) in [(2, 112_000), (2, 50_000), (0, 110_500)] {
        let claim = Claim {
            unchanged: Duration::from_secs(unchanged),
            ..claim(Timestamp::from_millisecond(now).unwrap())
        };
        let spec = claim.over(Some(held("a", 110)));
        assert_eq!(spec.renew_time, Some(MicroTime(claim.now)));
    }
}

#[test]
fn clock_that_repeats_a_second_still_changes_the_lease() {
    // The clock stood still, or was set back.
    for now in [110_000, 110_700] {
        let spec = claim(Timestamp::from_millisecond(now).unwrap()).over(Some(held("a", 110)));
        assert_eq!(spec.renew_time, Some(MicroTime(at(112))));
    }
    let at_once = Claim {
        unchanged: Duration::ZERO,
        ..claim(at(110))
    };
    let spec = at_once.over(Some(held("a", 110)));
    assert_ne!(spec.renew_time, held("a", 110).renew_time);
}

#[tokio::test(start_paused = true)]
async fn candidate_waits_a_lease_duration_after_each_change() {
    let start = Instant::now();
    let second = |n| start + Duration::from_secs(n);
    let mut observed = Observed::new(held("b", 110), start);
    assert_eq!(observed.held_until("a", second(14)), Some(second(15)));
    assert_eq!(observed.held_until("a", second(15)), None);
    // Reading the same Lease again does not count as a renewal.
    observed.update(held("b", 110), second(10));
    assert_eq!(observed.held_until("a", second(15)), None);
    // A change does, whatever time it carries.
    observed.update(held("b", 1), second(12));
    assert_eq!(observed.held_until("a", second(20)), Some(second(27)));
    assert_eq!(observed.held_until("b", second(20)), None);
    observed.update(released(held("b", 1), at(2)), second(21));
    assert_eq!(observed.held_until("a", second(21)), None);
}
