use super::*;

fn bar(label: &str, median: f64, ours: bool) -> Bar {
    let value = Spread {
        median,
        min: median * 0.9,
        max: median * 1.1,
    };
    Bar {
        label: label.to_owned(),
        value,
        ours,
    }
}

#[test]
fn names_are_escaped() {
    assert_eq!(escape(r#"a<b> & "c'"#), "a&lt;b&gt; &amp; &quot;c&#39;");
    let group = Group {
        title: "1 < 2".into(),
        unit: " µs",
        bars: vec![bar("<script>", 1.0, false)],
    };
    let svg = svg("a & b", &[group]);
    assert!(
        svg.contains("&lt;script&gt;") && svg.contains("a &amp; b") && svg.contains("1 &lt; 2")
    );
    assert!(!svg.contains("<script>"));
}

#[test]
fn bar_lengths_are_proportional() {
    let group = Group {
        title: "group".into(),
        unit: " KiB",
        bars: vec![bar("ours", 10.0, true), bar("theirs", 40.0, false)],
    };
    let svg = svg("title", &[group]);
    let widths: Vec<f64> = svg
        .lines()
        .filter(|line| line.starts_with("<rect"))
        .filter_map(|line| {
            line.split("width=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(widths.len(), 2);
    assert!((widths[1] / widths[0] - 4.0).abs() < 0.1, "{widths:?}");
    assert!(widths[1] <= RIGHT - LEFT);
    assert!(svg.contains("class=\"ours\"") && svg.contains("40.0 KiB"));
    assert!(svg.contains("prefers-color-scheme: dark"));
    assert!(svg.contains("decodes on demand"), "missing caption");
}

#[test]
fn plot_without_data_is_skipped() {
    assert!(all(&Results::default()).is_empty());
}
