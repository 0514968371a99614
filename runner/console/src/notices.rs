//! The results of actions, which the page after the action shows.
//!
//! An address contains only the number of a result. If it contained the text, any link could make
//! the console show any text.

use std::collections::VecDeque;

use locks::Mutex;

/// The maximum number of results that are stored. Few are necessary, because a page is usually
/// shown right after its action.
const KEPT: usize = 32;

/// The last results of actions, each with its number.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The number of results since the start, which is also the number of the last result.
    count: u64,
    texts: VecDeque<(u64, String)>,
}

impl Notices {
    /// Stores a result, and returns its number.
    pub(crate) fn keep(&self, text: String) -> u64 {
        let mut kept = self.0.lock();
        kept.count += 1;
        let number = kept.count;
        kept.texts.push_back((number, text));
        if kept.texts.len() > KEPT {
            kept.texts.pop_front();
        }
        number
    }

    /// Returns a result by the number in an address; `None` if newer results have replaced it.
    pub(crate) fn find(&self, number: &str) -> Option<String> {
        let number: u64 = number.parse().ok()?;
        let kept = self.0.lock();
        kept.texts.iter().find(|(own, _)| *own == number).map(|(_, text)| text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_results_are_kept() {
        let notices = Notices::default();
        for number in 1..=40_u64 {
            assert_eq!(notices.keep(format!("result {number}")), number);
        }
        assert_eq!(notices.find("40").as_deref(), Some("result 40"));
        assert_eq!(notices.find("8"), None);
        assert_eq!(notices.find("<script>"), None);
    }
}
