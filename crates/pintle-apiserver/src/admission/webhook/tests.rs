use serde_json::json;

use super::*;

fn entries(names: &[&str]) -> Value {
    let entry = |name: &&str| {
        json!({"name": name, "matchConditions": [
        {"name": "c", "expression": "request.dryRun"}]})
    };
    names.iter().map(entry).collect()
}

fn names(hooks: &Hooks) -> Vec<String> {
    let hooks = hooks.current();
    hooks.iter().map(|hook| hook.name.clone()).collect()
}

/// Neither another registration nor a write waits while match conditions compile.
///
/// Proves admission/bounds.
#[test]
fn match_conditions_compile_outside_of_the_lock() {
    let hooks = Hooks::new(false);
    let mut reads = 0;
    hooks.replace("c", || {
        assert!(
            hooks.sources.is_locked(),
            "state is read outside the lock, so an older one may be published last"
        );
        reads += 1;
        Some(entries(&["a.example.com"]))
    });
    // Read once to compile, and again to check that the compiled configuration is still the stored
    // one.
    assert_eq!(reads, 2);
    assert_eq!(names(&hooks), ["a.example.com"]);
}

/// Proves admission/bounds.
#[test]
fn webhooks_changed_while_compiling_are_recompiled() {
    let hooks = Hooks::new(false);
    let mut states = [&["a.example.com"][..], &["b.example.com", "c.example.com"]].into_iter();
    let mut last = None;
    hooks.replace("c", || {
        last = states.next().map(entries).or(last.take());
        last.clone()
    });
    assert_eq!(names(&hooks), ["b.example.com", "c.example.com"]);
    let mut states = [Some(entries(&["d.example.com"])), None].into_iter();
    hooks.replace("c", || states.next().flatten());
    assert!(hooks.is_empty());
}

/// The limit on concurrent calls survives, because it belongs to the compiled webhook.
#[test]
fn metadata_change_does_not_recompile_webhooks() {
    let hooks = Hooks::new(false);
    let stored = || Some(entries(&["a.example.com"]));
    hooks.replace("c", stored);
    let before = hooks.current();
    hooks.replace("c", stored);
    assert!(Arc::ptr_eq(&before[0], &hooks.current()[0]));
}
