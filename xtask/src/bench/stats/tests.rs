use super::*;

#[test]
fn median_and_spread() {
    let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
    assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
    let even = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
    assert!((even.median - 2.5).abs() < 1e-9);
    assert!(Spread::of(Vec::new()).is_none());
    assert!(Spread::of(vec![f64::NAN]).is_none());
}

#[test]
fn single_round_has_no_spread() {
    assert_eq!(Spread::of(vec![1.5]).unwrap().show(), "1.50");
    assert_eq!(
        Spread::of(vec![1.0, 2.0, 9.0]).unwrap().show(),
        "2.00 (1.00–9.00)"
    );
}

#[test]
fn numbers_have_three_significant_digits() {
    let shown = [0.0, 0.0612, 0.61, 4.567, 45.67, 456.7, 1234.5, 1_234_567.0].map(number);
    assert_eq!(
        shown,
        [
            "0",
            "0.061",
            "0.610",
            "4.57",
            "45.7",
            "457",
            "1,234",
            "1,234,567"
        ]
    );
}
