//! The heat map of a table's load: time from left to right, tokens from bottom to top, and load as
//! shades.
//!
//! Each shade is a single path of thick lines, so that a map with a thousand cells has few bytes.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::load_history::{BANDS, PERIOD, SAMPLES_MAX, Sample};
use crate::parts::time;

/// The width of a cell in SVG units.
const WIDTH: usize = 16;
const HEIGHT: usize = 6;
/// The number of shades for a load above zero.
const SHADES: usize = 5;

/// Returns the map of one kind of load, reads or writes. `units` returns the rates of a sample.
pub(super) fn map(name: &str, samples: &[Sample], units: impl Fn(&Sample) -> &[f64]) -> Markup {
    let highest = samples.iter().flat_map(&units).copied().fold(0.0, f64::max);
    let paths: Vec<String> =
        (1..=SHADES).map(|shade| path(samples, &units, highest, shade)).collect();
    let splits = splits(samples);
    let (width, height) = (SAMPLES_MAX * WIDTH, BANDS * HEIGHT);
    let text = format!(
        "{name}: the darkest cell has {highest:.1} capacity units per second in 1/{BANDS} of the key space"
    );
    html! {
        figure {
            figcaption { (text) }
            svg.heat role="img" aria-label=(text) viewBox=(format!("0 0 {width} {height}"))
                width=(width) height=(height) {
                rect.ground width=(width) height=(height) {}
                @for (shade, path) in paths.iter().enumerate() {
                    @if !path.is_empty() {
                        path.load stroke-width=(HEIGHT) stroke-opacity=(format!("0.{}", 2 * shade + 1)) d=(path) {}
                    }
                }
                @for (x, before, after) in &splits {
                    line.split x1=(x) x2=(x) y1="0" y2=(height) {
                        title { (before) " partitions became " (after) }
                    }
                }
            }
            p.note {
                "Left: " (age(samples)) ", right: now. The highest tokens are at the top. Dashed lines are splits."
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

/// Returns the age of the left edge of a map.
fn age(samples: &[Sample]) -> String {
    let seconds = i64::try_from(PERIOD.as_secs()).unwrap_or_default();
    let all = i64::try_from(SAMPLES_MAX).unwrap_or_default() * seconds;
    match samples.len() {
        0 | 1 => "nothing yet".to_owned(),
        _ => format!("{} ago", time::duration(all * 1_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(partitions: usize, rates: &[(usize, f64)]) -> Sample {
        let mut writes = vec![0.0; BANDS];
        for (band, rate) in rates {
            writes[*band] = *rate;
        }
        Sample { at: 0, partitions, reads: vec![0.0; BANDS], writes }
    }

    #[test]
    fn a_map_has_a_cell_for_each_load_and_a_line_for_each_split() {
        let samples = [sample(4, &[(0, 10.0)]), sample(4, &[(0, 10.0), (31, 1.0)]), sample(5, &[])];
        let html = map("Writes", &samples, |sample| &sample.writes).into_string();
        // Band 0 is at the bottom, and two adjacent samples are one line.
        assert!(html.contains(r#"stroke-opacity="0.9" d="M592 189h32""#), "{html}");
        assert!(html.contains(r#"stroke-opacity="0.1" d="M608 3h16""#), "{html}");
        assert!(html.contains(r#"x1="624""#) && html.contains("4 partitions became 5"), "{html}");
        assert!(html.contains("darkest cell has 10.0"), "{html}");
        let quiet = map("Reads", &samples, |sample| &sample.reads).into_string();
        assert!(!quiet.contains("<path"), "{quiet}");
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
        let html = map("Writes", &samples, |sample| &sample.writes).into_string();
        assert!(html.len() < 18_000, "{}", html.len());
    }
}
