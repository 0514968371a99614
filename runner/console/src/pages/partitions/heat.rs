//! The heat map of a table's load: time from left to right, tokens from bottom to top, and load as
//! shades. The axes have ticks with the times and the partitions, and the shades have a legend.
//!
//! Each shade is a single path of thick lines, so that a map with a thousand cells has few bytes.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::darkest::Darkest;
use super::view::HotKey;
use crate::load_history::{BANDS, Partition, SAMPLES_MAX, Sample};

/// The width of a cell in SVG units.
const WIDTH: usize = 16;
const HEIGHT: usize = 6;
/// The width of the names of partitions, left of the cells.
const LEFT: usize = 96;
/// The height of the times, below the cells.
const BELOW: usize = 18;
/// The minimum distance between the names of two partitions.
const NAME_HEIGHT: usize = 12;
/// The minutes between two ticks of the time.
const TICK_MINUTES: usize = 2;
/// The number of samples in a minute.
const SAMPLES_PER_MINUTE: usize = 4;
/// The number of shades for a load above zero.
const SHADES: u8 = 5;

/// The data of a map of one kind of load.
pub(super) struct Map<'a> {
    /// The name of the load: `Writes` or `Reads`.
    pub(super) name: &'a str,
    pub(super) samples: &'a [Sample],
    pub(super) partitions: &'a [Partition],
    /// The key with the most traffic of this kind.
    pub(super) hottest: Option<&'a HotKey>,
}

/// Returns the map of one kind of load. `units` returns the rates of a sample.
pub(super) fn map(of: &Map<'_>, units: impl Fn(&Sample) -> &[f64]) -> Markup {
    let Map { name, samples, partitions, hottest } = *of;
    let darkest = Darkest::of(samples, &units, partitions, hottest);
    let highest = darkest.map_or(0.0, |darkest| darkest.rate);
    let paths: Vec<String> =
        (1..=SHADES).map(|shade| path(samples, &units, highest, shade.into())).collect();
    let splits = splits(samples);
    let (width, height) = (SAMPLES_MAX * WIDTH, BANDS * HEIGHT);
    let (all_width, all_height) = (LEFT + width, height + BELOW);
    let text = sentence(name, darkest.as_ref(), hottest);
    html! {
        figure {
            figcaption { (text) }
            svg.heat role="img" aria-label=(text) viewBox=(format!("0 0 {all_width} {all_height}"))
                width=(all_width) height=(all_height) {
                g transform=(format!("translate({LEFT} 0)")) {
                    rect.ground width=(width) height=(height) {}
                    @for (shade, path) in paths.iter().enumerate() {
                        @if !path.is_empty() {
                            path.load stroke-width=(HEIGHT) stroke-opacity=(opacity(shade)) d=(path) {}
                        }
                    }
                    @for (x, before, after) in &splits {
                        line.split x1=(x) x2=(x) y1="0" y2=(height) {
                            title { (before) " partitions became " (after) }
                        }
                    }
                    (times(width, height))
                    (names(partitions, height))
                }
            }
            (legend(highest))
            p.note { "The highest tokens are at the top. The load of a partition is spread evenly over its cells. Dashed lines are splits." }
        }
    }
}

/// Returns the opacity of a shade, counted from 0.
fn opacity(shade: usize) -> String {
    format!("0.{}", 2 * shade + 1)
}

/// Returns the sentence about the darkest cell, and whether the hottest key is in its partition.
fn sentence(name: &str, darkest: Option<&Darkest>, hottest: Option<&HotKey>) -> String {
    let Some(darkest) = darkest else { return format!("{name}: no load in this time") };
    let place = match (darkest.partition, darkest.has_split) {
        (Some(number), false) => format!("in partition {number}"),
        (Some(number), true) => format!("in the tokens of what is now partition {number}"),
        (None, _) => "in an unknown partition".to_owned(),
    };
    let cell = format!(
        "{name}: the darkest cell has {:.1} capacity units per second, {place} at {} UTC",
        darkest.rate,
        minute(darkest.at)
    );
    match (hottest, darkest.has_hottest) {
        (Some(hot), Some(true)) => {
            format!(
                "{cell}. The hottest key ({:.1} units/s) is in this partition",
                hot.units_per_second
            )
        }
        (Some(hot), Some(false)) => format!(
            "{cell}. The hottest key of the last minute ({:.1} units/s) is in partition {}",
            hot.units_per_second, hot.partition
        ),
        _ => cell,
    }
}

/// Returns the hour and the minute of a time.
fn minute(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or("–".to_owned(), |time| time.strftime("%H:%M").to_string())
}

/// Returns the ticks of the time axis. The newest sample is at the right edge.
fn times(width: usize, height: usize) -> Markup {
    let minutes = (0..=SAMPLES_MAX / SAMPLES_PER_MINUTE).step_by(TICK_MINUTES);
    html! {
        g.ticks {
            @for minutes in minutes {
                @let x = width.saturating_sub(minutes * SAMPLES_PER_MINUTE * WIDTH);
                @let anchor = match x { 0 => "start", x if x == width => "end", _ => "middle" };
                path d=(format!("M{x} {height}v4")) {}
                text x=(x) y=(height + 14) text-anchor=(anchor) {
                    @if minutes == 0 { "now" } @else { (minutes) " min ago" }
                }
            }
        }
    }
}

/// Returns the numbers of the partitions beside their tokens, as many as fit. A tick is at the first
/// token of a partition.
fn names(partitions: &[Partition], height: usize) -> Markup {
    let y_of = |token: u64| {
        // The scale has a few hundred units, so the upper 32 bits suffice.
        let share = usize::try_from(token >> 32).unwrap_or(usize::MAX);
        let rounded = share.saturating_mul(height).saturating_add(1 << 31);
        height.saturating_sub(rounded >> 32)
    };
    let mut last = usize::MAX;
    let mut shown = Vec::new();
    for partition in partitions {
        let Some((first, end)) = partition.tokens() else { continue };
        let middle = y_of(first / 2 + end / 2);
        if last.saturating_sub(middle) >= NAME_HEIGHT {
            last = middle;
            shown.push((y_of(first), middle, partition.number));
        }
    }
    html! {
        g.ticks {
            @for (first, middle, number) in &shown {
                path d=(format!("M0 {first}h-6")) {}
                text x="-8" y=(middle + 4) text-anchor="end" { "partition " (number) }
            }
        }
    }
}

/// Returns the rates of the shades.
fn legend(highest: f64) -> Markup {
    // Small rates need more decimals, or all bounds would be 0.0.
    let decimals = if highest < 1.0 { 3 } else { 1 };
    let bound = |shade: u8| {
        let rate = highest * f64::from(shade) / f64::from(SHADES);
        format!("{rate:.decimals$}")
    };
    html! {
        @if highest > 0.0 {
            ul.legend {
                li { "Capacity units per second:" }
                @for shade in 0..SHADES {
                    li {
                        svg.heat width=(WIDTH) height="10" aria-hidden="true" {
                            path.load stroke-width="10" stroke-opacity=(opacity(shade.into())) d=(format!("M0 5h{WIDTH}")) {}
                        }
                        " " (bound(shade)) " to " (bound(shade + 1))
                    }
                }
            }
        }
    }
}

/// Returns the cells of a shade as an SVG path. Adjacent cells in time are joined to one line.
fn path(
    samples: &[Sample],
    units: &impl Fn(&Sample) -> &[f64],
    highest: f64,
    shade: usize,
) -> String {
    let mut path = String::new();
    // The newest sample is at the right edge.
    let offset = SAMPLES_MAX.saturating_sub(samples.len());
    for band in 0..BANDS {
        let y = (BANDS - 1 - band) * HEIGHT + HEIGHT / 2;
        let mut begin = None;
        for at in 0..=samples.len() {
            let rate = samples.get(at).and_then(|sample| units(sample).get(band)).copied();
            let is_in = rate.is_some_and(|rate| shade_of(rate, highest) == shade);
            match (begin, is_in) {
                (None, true) => begin = Some(at),
                (Some(first), false) => {
                    let (x, width) = ((offset + first) * WIDTH, (at - first) * WIDTH);
                    let _ = write!(path, "M{x} {y}h{width}");
                    begin = None;
                }
                _ => {}
            }
        }
    }
    path
}

/// Returns the shade of a rate: 0 for none, else 1 to [`SHADES`] in equal steps up to the highest rate.
fn shade_of(rate: f64, highest: f64) -> usize {
    if rate <= 0.0 || highest <= 0.0 {
        return 0;
    }
    let share = rate / highest;
    [0.2, 0.4, 0.6, 0.8].iter().filter(|bound| share > **bound).count() + 1
}

/// Returns the positions at which the number of partitions changed, with the numbers before and
/// after.
fn splits(samples: &[Sample]) -> Vec<(usize, usize, usize)> {
    let offset = SAMPLES_MAX.saturating_sub(samples.len());
    let pairs = samples.windows(2).enumerate();
    let changed = pairs.filter_map(|(at, pair)| match pair {
        [before, after] if before.partitions != after.partitions => {
            Some(((offset + at + 1) * WIDTH, before.partitions, after.partitions))
        }
        _ => None,
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_history::PERIOD;

    fn sample(partitions: usize, rates: &[(usize, f64)]) -> Sample {
        let mut writes = vec![0.0; BANDS];
        for (band, rate) in rates {
            writes[*band] = *rate;
        }
        Sample { at: 0, partitions, reads: vec![0.0; BANDS], writes }
    }

    fn partitions(count: u32) -> Vec<Partition> {
        let tokens = u64::MAX / u64::from(count);
        let of = |number: u32| Partition {
            number,
            first_token: (tokens * u64::from(number)).to_string(),
            last_token: (tokens * u64::from(number) + (tokens - 1)).to_string(),
            items: 0,
            bytes: 0,
            read_units_per_second: 0.0,
            write_units_per_second: 0.0,
            shard: None,
            splitting: false,
        };
        (0..count).map(of).collect()
    }

    fn hot(partition: u32) -> HotKey {
        HotKey {
            key: serde_json::json!({"p": {"S": "a"}}),
            token: "1".to_owned(),
            partition,
            units_per_second: 80.0,
            error_per_second: 0.0,
        }
    }

    fn writes(samples: &[Sample], partitions: &[Partition], hottest: Option<&HotKey>) -> String {
        let of = Map { name: "Writes", samples, partitions, hottest };
        map(&of, |sample| &sample.writes).into_string()
    }

    #[test]
    fn a_map_has_a_cell_for_each_load_and_a_line_for_each_split() {
        let samples = [sample(4, &[(0, 10.0)]), sample(4, &[(0, 10.0), (31, 1.0)]), sample(5, &[])];
        let html = writes(&samples, &partitions(5), Some(&hot(0)));
        // Band 0 is at the bottom, and two adjacent samples are one line.
        assert!(html.contains(r#"stroke-opacity="0.9" d="M592 189h32""#), "{html}");
        assert!(html.contains(r#"stroke-opacity="0.1" d="M608 3h16""#), "{html}");
        assert!(html.contains(r#"x1="624""#) && html.contains("4 partitions became 5"), "{html}");
        let of = Map { name: "Reads", samples: &samples, partitions: &[], hottest: None };
        let quiet = map(&of, |sample| &sample.reads).into_string();
        assert!(!quiet.contains("path class=\"load\""), "{quiet}");
        assert!(quiet.contains("Reads: no load in this time"), "{quiet}");
    }

    #[test]
    fn the_sentence_says_whether_the_hottest_key_is_in_the_darkest_cell() {
        let samples = [sample(4, &[(0, 10.0)])];
        let cell = "Writes: the darkest cell has 10.0 capacity units per second, in partition 0 at 00:00 UTC";
        for (hottest, expected) in [
            (None, cell.to_owned()),
            (Some(hot(0)), format!("{cell}. The hottest key (80.0 units/s) is in this partition")),
            (
                Some(hot(2)),
                format!(
                    "{cell}. The hottest key of the last minute (80.0 units/s) is in partition 2"
                ),
            ),
        ] {
            let html = writes(&samples, &partitions(4), hottest.as_ref());
            assert!(html.contains(&format!("<figcaption>{expected}</figcaption>")), "{html}");
        }
        let html = writes(&samples, &partitions(5), None);
        assert!(html.contains("in the tokens of what is now partition 0 at"), "{html}");
    }

    #[test]
    fn the_axes_and_the_shades_have_numbers() {
        let minute = PERIOD * u32::try_from(SAMPLES_PER_MINUTE).unwrap();
        assert_eq!(minute.as_secs(), 60);
        let html = writes(&[sample(4, &[(0, 10.0)])], &partitions(4), None);
        for part in [
            r#"<text x="640" y="206" text-anchor="end">now</text>"#,
            r#"<text x="512" y="206" text-anchor="middle">2 min ago</text>"#,
            r#"<text x="0" y="206" text-anchor="start">10 min ago</text>"#,
            r#"<path d="M0 192h-6"></path><text x="-8" y="172" text-anchor="end">partition 0</text>"#,
            "partition 3",
            "0.0 to 2.0",
            "8.0 to 10.0",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let slow = writes(&[sample(4, &[(0, 0.1)])], &partitions(4), None);
        assert!(slow.contains("0.000 to 0.020"), "{slow}");
        // Of many partitions, only as many are named as fit, with one name at each end of the axis.
        let many = writes(&[sample(900, &[(0, 10.0)])], &partitions(900), None);
        assert!(many.matches(">partition ").count() <= BANDS * HEIGHT / NAME_HEIGHT + 1, "{many}");
    }

    #[test]
    fn a_map_without_two_equal_neighbours_stays_small() {
        let noisy = |at: usize| {
            let rates: Vec<(usize, f64)> = (0..BANDS)
                .map(|band| (band, f64::from(u8::try_from((band + at) % 5).unwrap()) + 1.0))
                .collect();
            sample(4, &rates)
        };
        let samples: Vec<Sample> = (0..SAMPLES_MAX).map(noisy).collect();
        let html = writes(&samples, &partitions(900), Some(&hot(0)));
        assert!(html.len() < 20_000, "{}", html.len());
    }
}
