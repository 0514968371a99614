//! Reads members of a journal line without parsing the line, which may name 10,000 records.
//!
//! A search cannot match inside a string, because quotes are escaped there.

/// Returns the text between `before` and the next quote, such as the value of a string member if
/// `before` is `"kind":"`.
pub(super) fn text_after<'l>(line: &'l str, before: &str) -> Option<&'l str> {
    let (_, behind) = line.split_once(before)?;
    behind.split('"').next()
}

/// Returns the number after `before`, such as the value of a member if `before` is `"at_ms":`.
pub(super) fn number_after(line: &str, before: &str) -> Option<i64> {
    line.split_once(before)?.1.split([',', '}']).next()?.parse().ok()
}

/// Returns the name of the line's mapping.
pub(super) fn mapping_of(line: &str) -> Option<&str> {
    text_after(line, "\"mapping\":\"")
}

/// Returns the sequence numbers of the first and the last record of a line about records.
pub(super) fn ends_of<'l>(line: &'l str, kind: &str) -> Option<(&'l str, &'l str)> {
    match kind {
        "invoked" => {
            let first = text_after(line, "\"records\":[[\"")?;
            let last = line.rsplit_once("],[\"").and_then(|(_, last)| last.split('"').next());
            Some((first, last.unwrap_or(first)))
        }
        "passed-over" => {
            let only = text_after(line, "\"record\":[\"")?;
            Some((only, only))
        }
        _ => Some((text_after(line, "\"first\":\"")?, text_after(line, "\"last\":\"")?)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Line, RecordName};
    use super::*;

    #[test]
    fn members_of_a_line_are_found_without_parsing_it() {
        let name = |sequence: &str| RecordName(sequence.to_owned(), "e".to_owned(), "X".to_owned());
        let (mapping, shard) = ("m".to_owned(), "s".to_owned());
        for (sequences, expected) in [
            (vec!["41", "42", "43"], Some(("41", "43"))),
            (vec!["7"], Some(("7", "7"))),
            (vec![], None),
        ] {
            let entry = Entry::Invoked {
                mapping: mapping.clone(),
                shard: shard.clone(),
                at_ms: 5,
                tick_ms: 6,
                batch: 8,
                attempt: 1,
                records: sequences.into_iter().map(name).collect(),
                request: Some("r".to_owned()),
            };
            let line = serde_json::to_string(&Line { run: 3, entry }).unwrap();
            assert_eq!(ends_of(&line, "invoked"), expected, "{line}");
            assert_eq!(text_after(&line, "\"kind\":\""), Some("invoked"));
            assert_eq!(mapping_of(&line), Some("m"));
            let numbers = ["\"run\":", "\"at_ms\":", "\"batch\":"];
            assert_eq!(numbers.map(|name| number_after(&line, name)), [Some(3), Some(5), Some(8)]);
        }
        let (at_ms, why) = (5, vec!["\"first\":\"1\"".to_owned()]);
        let entry = Entry::PassedOver { mapping, shard, at_ms, record: name("9"), why };
        let line = serde_json::to_string(&Line { run: 3, entry }).unwrap();
        assert_eq!(ends_of(&line, "passed-over"), Some(("9", "9")), "{line}");
    }
}
