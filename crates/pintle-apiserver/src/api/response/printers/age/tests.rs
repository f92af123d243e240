use super::human;

#[test]
fn durations_print_like_kubectl() {
    let cases = [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (3600, "60m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (90_000, "25h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (700_000, "8d"),
        (63_072_000, "2y"),
        (70_000_000, "2y80d"),
        (300_000_000, "9y"),
    ];
    for (seconds, text) in cases {
        assert_eq!(human(seconds), text);
    }
}
