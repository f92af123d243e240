//! Bar charts as SVG, for light and dark pages.

use std::fmt::Write as _;

use super::live::GO_FOO;
use super::plan::{PEERS, Work, eager_case, live_case, sync_case};
use super::samples::{Figure, Results};
use super::stats::{Spread, number};

const WIDTH: f64 = 720.0;
/// Left and right end of the bars.
const LEFT: f64 = 230.0;
const RIGHT: f64 = 600.0;
const LINE: f64 = 26.0;
/// The caption of every plot, line by line.
const CAVEAT: [&str; 2] = [
    "Pintle caches each object's bytes with a parsed header and decodes on demand;",
    "the others hold decoded objects.",
];

/// Bars that share a scale.
pub(super) struct Group {
    title: String,
    unit: &'static str,
    bars: Vec<Bar>,
}

struct Bar {
    label: String,
    value: Spread,
    ours: bool,
}

/// Returns all plots by file name, except those without data.
pub(super) fn all(results: &Results) -> Vec<(&'static str, String)> {
    let sync = |figure| {
        let recorded = |title: &str, ours: &str, theirs: &str| {
            let case = |peer: &str| sync_case(if peer == "pintle" { ours } else { theirs });
            group(
                results,
                Work::Sync,
                title,
                &PEERS.map(|peer| (peer.to_owned(), peer, case(peer))),
                figure,
            )
        };
        let live = PEERS.map(|peer| {
            let go = matches!(peer, "client-go" | "controller-runtime");
            let encoding = if go { "protobuf" } else { "json" };
            let shown = if go { encoding } else { "JSON" };
            (format!("{peer}, {shown}"), peer, live_case(encoding, false))
        });
        let mut kept = recorded(
            "recorded stream, JSON, managedFields kept in all",
            "keep",
            "keep",
        );
        let eager = (
            "Pintle, decoding eagerly".to_owned(),
            "pintle",
            eager_case(),
        );
        let eager = group(results, Work::Sync, "", &[eager], figure).bars;
        let second = kept.bars.len().min(1);
        kept.bars.splice(second..second, eager);
        vec![
            kept,
            recorded(
                "with default settings: Pintle WITHOUT managedFields, the others WITH (not like for like)",
                "strip",
                "keep",
            ),
            recorded(
                "recorded stream, JSON, managedFields stripped in all",
                "strip",
                "strip",
            ),
            group(
                results,
                Work::Sync,
                "live, each with its own encoding, managedFields kept",
                &live,
                figure,
            ),
        ]
    };
    let unit = |mut groups: Vec<Group>, unit| {
        for group in &mut groups {
            group.unit = unit;
        }
        groups
    };
    let foo = |title, figure| {
        let work = results.works.get(Work::Foo.name());
        let case = work
            .and_then(|work| work.samples.first())
            .map(|sample| sample.case.clone());
        let case = case.unwrap_or_default();
        let peers = ["pintle", GO_FOO].map(|peer| (peer.to_owned(), peer, case.clone()));
        group(results, Work::Foo, title, &peers, figure)
    };
    let mut throughput = foo(
        "Foos per second, from creation to Deployment and status",
        Figure::PerSecond,
    );
    throughput.unit = "/s";
    let mut memory = foo(
        "peak memory of the controller",
        Figure::Raw("peak_kib", 1.0 / 1024.0),
    );
    memory.unit = " MiB";
    let mut cpu = foo("CPU per Foo", Figure::Raw("cpu_ms_per_foo", 1.0));
    cpu.unit = " ms";
    let plots = [
        (
            "memory.svg",
            "Memory per cached Pod",
            unit(sync(Figure::MemoryPerObject), " KB"),
        ),
        (
            "sync.svg",
            "CPU per Pod of the first sync",
            unit(sync(Figure::CpuPerCount), " µs"),
        ),
        (
            "foo.svg",
            "The Foo controllers, end to end",
            vec![throughput, cpu, memory],
        ),
    ];
    plots
        .into_iter()
        .filter_map(|(file, title, mut groups)| {
            groups.retain(|group| !group.bars.is_empty());
            (!groups.is_empty()).then(|| (file, svg(title, &groups)))
        })
        .collect()
}

fn group(
    results: &Results,
    work: Work,
    title: &str,
    bars: &[(String, &str, String)],
    figure: Figure,
) -> Group {
    let work = results.works.get(work.name());
    let bars = bars.iter().filter_map(|(label, peer, case)| {
        let value = work?.spread(case, peer, figure)?;
        Some(Bar {
            label: label.replacen("pintle", "Pintle", 1),
            value,
            ours: *peer == "pintle",
        })
    });
    Group {
        title: title.to_owned(),
        unit: "",
        bars: bars.collect(),
    }
}

/// Renders the groups below each other, each with its own scale.
pub(super) fn svg(title: &str, groups: &[Group]) -> String {
    let lines: usize = groups.iter().map(|group| group.bars.len() + 1).sum();
    #[allow(clippy::cast_precision_loss, reason = "a few dozen lines")]
    let height = 44.0 + LINE * (lines + CAVEAT.len()) as f64 + 10.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #1f2328; }}
.title {{ font-size: 16px; font-weight: 600; }}
.group {{ fill: #59636e; }}
.bar {{ fill: #8c959f; }}
.ours {{ fill: #0969da; }}
.spread {{ stroke: #1f2328; stroke-width: 1; }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc; }}
.group {{ fill: #9198a1; }}
.bar {{ fill: #656c76; }}
.ours {{ fill: #4493f8; }}
.spread {{ stroke: #f0f6fc; }}
}}
</style>
<text class="title" x="12" y="26">{}</text>
"#,
        escape(title),
        escape(title)
    );
    let mut y = 44.0;
    for group in groups {
        let _ = writeln!(
            svg,
            r#"<text class="group" x="12" y="{:.1}">{}</text>"#,
            y + 17.0,
            escape(&group.title)
        );
        y += LINE;
        let most = group
            .bars
            .iter()
            .map(|one| one.value.max)
            .fold(f64::MIN_POSITIVE, f64::max);
        for one in &group.bars {
            draw(&mut svg, one, group.unit, (RIGHT - LEFT) / most, y);
            y += LINE;
        }
    }
    for line in CAVEAT {
        let _ = writeln!(
            svg,
            r#"<text class="group" x="12" y="{:.1}">{}</text>"#,
            y + 17.0,
            escape(line)
        );
        y += LINE;
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, drawn: &Bar, unit: &str, scale: f64, y: f64) {
    let class = if drawn.ours { "ours" } else { "bar" };
    let (width, low, high) = (
        drawn.value.median * scale,
        LEFT + drawn.value.min * scale,
        LEFT + drawn.value.max * scale,
    );
    let text = y + 17.0;
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{text:.1}" text-anchor="end">{}</text>"#,
        LEFT - 8.0,
        escape(&drawn.label)
    );
    let _ = writeln!(
        svg,
        r#"<rect class="{class}" x="{LEFT:.1}" y="{:.1}" width="{:.1}" height="16" rx="2"/>"#,
        y + 4.0,
        width.max(1.0)
    );
    if high - low > 1.0 {
        let middle = y + 12.0;
        let _ = writeln!(
            svg,
            r#"<path class="spread" d="M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6"/>"#,
            middle - 3.0,
            middle - 3.0
        );
    }
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{text:.1}">{}{}</text>"#,
        high.max(LEFT + width) + 8.0,
        number(drawn.value.median),
        escape(unit)
    );
}

/// Escapes text for XML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
