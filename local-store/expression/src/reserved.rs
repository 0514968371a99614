//! The 573 reserved words, which are not allowed as attribute names in expressions.
//!
//! The words are in `reserved_words.txt`, lowercase and sorted. Source: AWS, "Reserved words in
//! DynamoDB".

use std::sync::LazyLock;

static WORDS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("reserved_words.txt").lines().collect());

/// Returns whether `word` is reserved, in any case.
pub(crate) fn is_reserved(word: &str) -> bool {
    let folded = word.to_ascii_lowercase();
    WORDS.binary_search(&folded.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_whole_and_sorted() {
        assert_eq!(WORDS.len(), 573);
        assert!(WORDS.is_sorted_by(|left, right| left < right));
        assert!(WORDS.iter().all(|word| is_reserved(word)));
    }

    #[test]
    fn case_does_not_matter_and_parts_do_not_count() {
        for word in ["name", "NAME", "Status", "ttl", "zone", "abort"] {
            assert!(is_reserved(word), "{word}");
        }
        for word in ["name_1", "nam", "pk", "", "a", "expires_at"] {
            assert!(!is_reserved(word), "{word}");
        }
    }
}
