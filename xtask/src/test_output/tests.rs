use super::*;

#[test]
fn results_of_several_binaries_add_up() {
    let output = "running 4 tests\n\
            test slow::soak ... ignored, takes a night\n\
            test ignored ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1s\n\
            a line that mentions test result: ok. 9 passed\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
    let totals = Totals::echo(output.as_bytes());
    assert_eq!(
        totals,
        Totals {
            passed: 13,
            failed: 2,
            ignored: 1,
            ignored_names: vec!["slow::soak".to_owned()]
        }
    );
}
