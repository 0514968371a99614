//! The figures of an open page, which are read only from the status file.

use std::collections::BTreeMap;

use super::status::Status;
use super::view::{Figures, Mapping};
use super::{mappings, rates};
use crate::context::Context;
use crate::parts::time;
use crate::rates::PerSecond;

/// The figures as strings, by name.
pub(crate) type Texts = BTreeMap<String, String>;

/// The state of sampling for one open page.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    /// The parts of the page that are not figures, at the last sample.
    shape: Option<Vec<String>>,
    /// The figures that the page has received.
    sent: Texts,
}

/// The difference between two samples.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Only these figures changed. The map may be empty.
    Figures(Texts),
    /// A state or a sentence changed, so the page must be reloaded.
    Shape,
}

impl Sampler {
    /// Takes a sample, and returns the change since the last sample. This reads a file, so call it
    /// on a thread that may block.
    pub(crate) fn sample(&mut self, context: &Context) -> Option<Change> {
        let status = Status::read(&context.directory()?)?;
        Some(self.compare(&status, &rates(context, &status)))
    }

    fn compare(&mut self, status: &Status, rates: &PerSecond) -> Change {
        let mappings = mappings(status, &[], rates);
        let shape = mappings.iter().map(|it| format!("{} {:?}", it.mapping, it.state)).collect();
        let earlier = self.shape.replace(shape);
        if earlier.is_some() && earlier != self.shape {
            self.sent.clear();
            return Change::Shape;
        }
        let texts = texts(&mappings);
        let changed = texts.iter().filter(|(name, text)| self.sent.get(*name) != Some(text));
        let changed = changed.map(|(name, text)| (name.clone(), text.clone())).collect();
        self.sent = texts;
        Change::Figures(changed)
    }
}

/// Returns the number of records that all mappings have read. This reads a file, so call it on a
/// thread that may block.
pub(crate) fn records_read(context: &Context) -> Option<u64> {
    let status = Status::read(&context.directory()?)?;
    Some(status.mappings.iter().map(|mapping| mapping.totals.read).sum())
}

/// Returns the figures of all mappings, by `MAPPING/NAME`.
fn texts(mappings: &[Mapping]) -> Texts {
    let mut texts = Texts::new();
    for mapping in mappings {
        let Some(figures) = &mapping.figures else { continue };
        texts.insert(name(mapping, "sentence"), mapping.sentence.clone());
        for (figure, text) in figure_texts(figures) {
            texts.insert(name(mapping, figure), text);
        }
    }
    // The sentence of a blocked mapping contains a reason from the journal, which figures do not
    // read. So a figure must not replace this sentence.
    texts.retain(|name, _| !name.ends_with("/sentence") || !blocked(mappings, name));
    texts
}

fn blocked(mappings: &[Mapping], figure: &str) -> bool {
    let own = figure.strip_suffix("/sentence");
    mappings
        .iter()
        .any(|it| Some(it.mapping.as_str()) == own && it.state == super::state::State::Blocked)
}

/// Returns the name of a figure, which is its attribute `data-figure` in the page.
pub(super) fn name(mapping: &Mapping, figure: &str) -> String {
    format!("{}/{figure}", mapping.mapping)
}

/// Returns the names and values of a mapping's figures, in the order of the page.
pub(super) fn figure_texts(figures: &Figures) -> [(&'static str, String); 8] {
    let rate = figures.records_per_second.map_or("–".to_owned(), per_second);
    [
        ("records/s", rate),
        ("lag", if figures.lag_ms == 0 { "0".to_owned() } else { time::duration(figures.lag_ms) }),
        ("waiting", figures.waiting.to_string()),
        ("read", figures.read.to_string()),
        ("filtered", figures.filtered.to_string()),
        ("delivered", figures.delivered.to_string()),
        ("failed invocations", figures.failed_invocations.to_string()),
        ("discarded", figures.discarded.to_string()),
    ]
}

fn per_second(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(read: u64, waiting: u64) -> Status {
        serde_json::from_value(serde_json::json!({
            "mappings": [{
                "mapping": "M", "described": true, "totals": {"read": read, "done": read},
                "shards": [{"waiting": waiting}],
            }],
        }))
        .unwrap()
    }

    #[test]
    fn only_changed_figures_are_sent_and_a_new_state_loads_the_page() {
        let mut sampler = Sampler::default();
        let rates = PerSecond::new();
        let mut names = |status: Status| match sampler.compare(&status, &rates) {
            Change::Figures(texts) => Some(texts.into_keys().collect::<Vec<_>>()),
            Change::Shape => None,
        };
        assert_eq!(names(status(1, 0)).unwrap().len(), 9);
        assert_eq!(names(status(1, 0)).unwrap(), Vec::<String>::new());
        assert_eq!(names(status(2, 0)).unwrap(), ["M/delivered", "M/read", "M/sentence"]);
        assert_eq!(names(status(2, 1)), None);
        assert_eq!(names(status(2, 1)).unwrap().len(), 9);
    }

    #[test]
    fn rates_have_two_digits() {
        for (rate, text) in [(0.0, "0"), (0.25, "0.2"), (9.99, "10.0"), (12_345.6, "12346")] {
            assert_eq!(per_second(rate), text);
        }
    }
}
