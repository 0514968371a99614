//! The counts of one slice of a task, and samples for operators.

use std::collections::BTreeMap;

use control::Task;

/// Maximum number of samples: enough for an operator to recognise the kind of problem.
const SAMPLES_MAX: usize = 5;
/// Maximum length of a sample in characters.
const SAMPLE_CHARACTERS_MAX: usize = 500;

/// Counts by name, and at most [`SAMPLES_MAX`] samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    counts: BTreeMap<&'static str, u64>,
    samples: Vec<String>,
}

impl Tally {
    /// Adds `more` to the count `name`.
    pub(crate) fn count(&mut self, name: &'static str, more: usize) {
        *self.counts.entry(name).or_default() += more as u64;
    }

    /// Counts an occurrence, and keeps its text as a sample for operators.
    pub(crate) fn sample(&mut self, name: &'static str, text: &str) {
        self.count(name, 1);
        if self.samples.len() < SAMPLES_MAX {
            self.samples
                .push(format!("{name}: {text}").chars().take(SAMPLE_CHARACTERS_MAX).collect());
        }
    }

    /// Adds the counts and samples of another tally.
    pub(crate) fn join(&mut self, more: Self) {
        for (name, count) in more.counts {
            *self.counts.entry(name).or_default() += count;
        }
        self.samples.extend(more.samples);
        self.samples.truncate(SAMPLES_MAX);
    }

    /// Adds the counts and samples to a task.
    pub(crate) fn add_to(&self, task: &mut Task) {
        task.add(self.counts.iter().map(|(name, count)| (*name, *count)), &self.samples);
    }
}
