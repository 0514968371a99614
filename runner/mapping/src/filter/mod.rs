//! Filter criteria: decides which records of a stream a function receives, and explains why.
//!
//! This module does not handle batches or checkpoints.
//!
//! A pattern is a JSON object whose leaves are lists: one element of a list must match, all fields
//! must match, and one of several patterns must match. This module reproduces the pitfalls that
//! were recorded on AWS:
//!
//! - The record is a tree, and operators apply only to its leaves. `{"a": [{"exists": true}]}`
//!   never matches a DynamoDB attribute, because `a` is an object (`{"S": …}`).
//!   `{"a": [{"exists": false}]}` always matches.
//! - `numeric` matches JSON numbers, never a DynamoDB `N`, which is a string;
//!   `ApproximateCreationDateTime` is a number.
//! - Numbers are equal when their notations are equal: 300, 300.0 and 3.0e2 differ.
//! - Arrays are flattened: one element must match.
//! - `eventSource`, `eventSourceARN` and `awsRegion` are added after filtering, so a pattern on
//!   them never matches.
//!
//! Source: AWS Lambda guide, "Control which events Lambda sends to your function".

mod pattern;
mod reach;
mod rule;
mod syntax;
mod unknown_name;

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use self::pattern::Pattern;
pub use self::reach::{PatternFault, RecordShape, Remark};
pub use self::unknown_name::UnknownName;
use super::record::Record;

/// The maximum number of patterns of a mapping (Lambda quota: 5, on request 10).
pub const PATTERNS_MAX: usize = 10;
/// The maximum number of characters of a pattern (Lambda API, `Filter`).
pub const PATTERN_CHARACTERS_MAX: usize = 4096;

/// The compiled filter of a mapping. Without patterns every record matches.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FilterCriteria {
    patterns: Vec<Pattern>,
}

/// The result of a filter for one record, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the function receives the record.
    pub matched: bool,
    /// The clause that decided the result; `None` if there are no patterns.
    pub clause: Option<Clause>,
}

/// The form of item values in an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemValues {
    /// The values themselves, for a user who asks for an explanation.
    Quoted,
    /// Only the types of the values, for explanations that are stored. A purge of an item does not
    /// remove its values from a stored explanation.
    Typed,
}

/// The pattern and the leaf that decided the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause {
    /// The index of a pattern, counted from 0: the matching pattern, or the first pattern if none
    /// matches.
    pub pattern: usize,
    /// The index of the first leaf that the record does not match; `None` if the pattern matches.
    pub leaf: Option<usize>,
}

/// A pattern that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("filter pattern {}{}: {problem}; write instead: {remedy}", pattern + 1, at(path))]
pub struct InvalidFilter {
    /// The index of the pattern, counted from 0.
    pub pattern: usize,
    /// The names on the path to the fault, joined by dots; empty if the fault concerns the entire
    /// pattern.
    pub path: String,
    /// A description of the mistake in the pattern.
    pub problem: String,
    /// The correction: the text to write instead.
    pub remedy: String,
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(", at `{path}`") }
}

impl FilterCriteria {
    /// Compiles the patterns of `FilterCriteria.Filters[].Pattern`, in order.
    ///
    /// # Errors
    /// When there are more patterns than [`PATTERNS_MAX`], a pattern is longer than
    /// [`PATTERN_CHARACTERS_MAX`], or a string is not JSON or not a pattern.
    pub fn compile<S: AsRef<str>>(patterns: &[S]) -> Result<Self, InvalidFilter> {
        if patterns.len() > PATTERNS_MAX {
            return Err(InvalidFilter {
                pattern: PATTERNS_MAX,
                path: String::new(),
                problem: format!("a mapping has at most {PATTERNS_MAX} filter patterns"),
                remedy: "fewer patterns, joined by $or".to_owned(),
            });
        }
        let compiled: Result<Vec<_>, _> = patterns
            .iter()
            .enumerate()
            .map(|(index, text)| compile_pattern(index, text.as_ref()))
            .collect();
        Ok(Self { patterns: compiled? })
    }

    /// Filters one record in the form in which a function receives it. The caller passes null for a
    /// record that cannot be parsed. Null matches, so that the function handles the record.
    #[must_use]
    pub fn verdict(&self, record: &Value) -> Verdict {
        if self.patterns.is_empty() || record.is_null() {
            return Verdict { matched: true, clause: None };
        }
        let mut first_unmet = None;
        for (index, pattern) in self.patterns.iter().enumerate() {
            let leaf = pattern.unmet(record);
            if leaf.is_none() {
                let clause = Clause { pattern: index, leaf };
                return Verdict { matched: true, clause: Some(clause) };
            }
            first_unmet = first_unmet.or(Some(Clause { pattern: index, leaf }));
        }
        Verdict { matched: false, clause: first_unmet }
    }

    /// Returns true if the function receives this record. The record is parsed only if there are
    /// patterns.
    #[must_use]
    pub fn passes(&self, record: &Record) -> bool {
        self.patterns.is_empty() || self.verdict(record.event()).matched
    }

    /// Explains why a record matches or not: one line for each pattern that was tried, with its
    /// number, counted from 1, and the number of patterns.
    #[must_use]
    pub fn explain(&self, record: &Value, values: ItemValues) -> Vec<String> {
        let mut lines = Vec::new();
        let all = self.patterns.len();
        for (number, pattern) in (1..).zip(&self.patterns) {
            let Some(leaf) = pattern.unmet(record) else {
                lines.push(format!("pattern {number} of {all} matches"));
                return lines;
            };
            let (demand, finding) = (pattern.demand(leaf), pattern.finding(leaf, record, values));
            lines.push(format!(
                "pattern {number} of {all} does not match: {demand}, found {finding}"
            ));
        }
        if lines.is_empty() {
            lines.push("there is no filter: every record matches".to_owned());
        }
        lines
    }
}

fn compile_pattern(index: usize, text: &str) -> Result<Pattern, InvalidFilter> {
    let fault = |problem: String, remedy: &str| InvalidFilter {
        pattern: index,
        path: String::new(),
        problem,
        remedy: remedy.to_owned(),
    };
    if text.chars().count() > PATTERN_CHARACTERS_MAX {
        let problem = format!("the pattern has more than {PATTERN_CHARACTERS_MAX} characters");
        return Err(fault(problem, "a shorter pattern"));
    }
    let not_json = |error: serde_json::Error| {
        fault(format!("the pattern is not JSON: {error}"), "{\"eventName\": [\"INSERT\"]}")
    };
    let _: IgnoredAny = serde_json::from_str(text).map_err(not_json)?;
    let raw: &RawValue = serde_json::from_str(text).map_err(not_json)?;
    Pattern::compile(raw).map_err(|misplaced| InvalidFilter {
        pattern: index,
        path: misplaced.path.join("."),
        problem: misplaced.fault.problem,
        remedy: misplaced.fault.remedy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    /// Each case of `testdata/filter/*.txt` compiles the patterns in its `pattern` lines and
    /// filters the records in its `record` lines. The first lines of each file describe the format.
    #[test]
    fn text_cases() {
        cases::check("filter", || run_case);
    }

    fn run_case(input: &str) -> String {
        let argument = |line: &str, word: &str| {
            line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' ')).map(str::to_owned)
        };
        let patterns: Vec<String> =
            input.lines().filter_map(|line| argument(line, "pattern")).collect();
        let criteria = match FilterCriteria::compile(&patterns) {
            Ok(criteria) => criteria,
            Err(error) => return format!("error: {error}\n"),
        };
        let mut output = String::new();
        for line in input.lines().filter(|line| !line.starts_with("pattern ")) {
            let text = argument(line, "record").expect("a line is `pattern …` or `record …`");
            let record: Value = serde_json::from_str(&text).unwrap();
            let verdict = criteria.verdict(&record);
            let explanation = criteria.explain(&record, ItemValues::Quoted);
            assert_eq!(verdict.matched, !explanation.last().unwrap().contains("does not match"));
            let word = if verdict.matched { "yes" } else { "no" };
            output.push_str(&format!("{word}: {}\n", explanation.join("; ")));
        }
        output
    }

    #[test]
    fn verdict_names_the_pattern_and_the_leaf() {
        let criteria = FilterCriteria::compile(&[
            r#"{"eventName":["INSERT"],"dynamodb":{"Keys":{"pk":{"S":["a"]}}}}"#,
            r#"{"eventName":["REMOVE"]}"#,
        ])
        .unwrap();
        let judge = |text: &str| criteria.verdict(&serde_json::from_str(text).unwrap());
        assert_eq!(judge(r#"{"eventName":"REMOVE"}"#).clause.unwrap().pattern, 1);
        let verdict = judge(r#"{"eventName":"MODIFY"}"#);
        assert!(!verdict.matched);
        assert_eq!(verdict.clause, Some(Clause { pattern: 0, leaf: Some(0) }));
    }

    #[test]
    fn an_explanation_that_is_kept_has_no_values_of_items() {
        let record = r#"{"eventName":"MODIFY","dynamodb":{"Keys":{"pk":{"S":"x1"}},"NewImage":{"n":{"N":"77"},"l":{"L":[{"BOOL":true}]}}}}"#;
        let record = serde_json::from_str(record).unwrap();
        for (pattern, typed, quoted) in [
            (r#"{"eventName":["INSERT"]}"#, "\"MODIFY\"", "\"MODIFY\""),
            (r#"{"dynamodb":{"Keys":{"pk":{"S":["y"]}}}}"#, "a string", "\"x1\""),
            (r#"{"dynamodb":{"NewImage":{"n":{"N":["1"]}}}}"#, "a string", "\"77\""),
            (r#"{"dynamodb":{"NewImage":{"l":{"L":{"BOOL":[false]}}}}}"#, "a boolean", "true"),
            (r#"{"dynamodb":{"NewImage":{"m":{"S":["y"]}}}}"#, "nothing", "nothing"),
        ] {
            let criteria = FilterCriteria::compile(&[pattern]).unwrap();
            for (values, found) in [(ItemValues::Typed, typed), (ItemValues::Quoted, quoted)] {
                let line = criteria.explain(&record, values).remove(0);
                assert!(line.ends_with(&format!(", found {found}")), "{line}");
            }
        }
    }

    #[test]
    fn an_unparsable_record_is_not_skipped() {
        let criteria = FilterCriteria::compile(&[r#"{"eventName":["INSERT"]}"#]).unwrap();
        assert_eq!(criteria.verdict(&Value::Null), Verdict { matched: true, clause: None });
        assert!(!criteria.verdict(&Value::Bool(true)).matched);
    }

    #[test]
    fn too_many_or_too_long_patterns_are_refused() {
        let pattern = r#"{"eventName":["INSERT"]}"#;
        assert!(FilterCriteria::compile(&[pattern; PATTERNS_MAX]).is_ok());
        assert!(FilterCriteria::compile(&[pattern; PATTERNS_MAX + 1]).is_err());
        let long = format!(r#"{{"eventName":["{}"]}}"#, "x".repeat(PATTERN_CHARACTERS_MAX));
        assert!(FilterCriteria::compile(&[long]).is_err());
        let deep = format!("{}[1]{}", r#"{"a":"#.repeat(500), "}".repeat(500));
        assert!(FilterCriteria::compile(&[deep]).is_err());
    }
}
