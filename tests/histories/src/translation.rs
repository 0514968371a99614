//! The translation of a register's history into the types of `todc-utils`, and the sequential specification of
//! a register. It decides nothing about the history.
//!
//! A request of unknown outcome was applied once, at any time after its call, or never. So it ends after all
//! others, behind the step `End`, and an unknown request that the search orders behind `End` was never applied.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use todc_utils::{Action, History, Specification};

/// The state of a register: a number, or nothing.
type Value = Option<u64>;

/// A line of a history. Its index and time are not needed: the order of the lines is the order of the times.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Line {
    process: usize,
    #[serde(rename = "type")]
    kind: LineKind,
    #[serde(flatten)]
    request: Request,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum LineKind {
    Invoke,
    Ok,
    Fail,
    Info,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "f", content = "value", rename_all = "lowercase")]
pub(crate) enum Request {
    Read(Value),
    Write(Value),
    Cas(Value, Value),
}

/// A step of the specification.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A request that was applied, with its answer.
    Known(Request),
    /// A request that was applied or not.
    Unknown(Request),
    /// The end of all requests that were answered.
    End,
}

/// The state of the specification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    value: Value,
    has_ended: bool,
}

/// The specification of a register that is empty at first.
pub(crate) struct Register;

impl Specification for Register {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        State::default()
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        let with = |value| State { value, ..*state };
        match *step {
            Step::End => (true, State { has_ended: true, ..*state }),
            Step::Unknown(_) if state.has_ended => (true, *state),
            // An unknown delete of nothing changes nothing, which is the same as an unknown delete that was
            // never applied. Without this rule each subset of the unknown deletes would be a state of the search.
            Step::Unknown(Request::Write(None)) => (state.value.is_some(), with(None)),
            Step::Known(request) | Step::Unknown(request) => match request {
                Request::Read(value) => (value == state.value, *state),
                Request::Write(value) => (true, with(value)),
                Request::Cas(expected, value) => (expected == state.value, with(value)),
            },
        }
    }
}

/// Translates a history.
pub(crate) fn history(lines: &[Line]) -> History<Step> {
    let ends = ends(lines);
    let seen = seen(lines);
    let (mut actions, mut unknown) = (Vec::new(), Vec::new());
    for (place, line) in lines.iter().enumerate() {
        let process = line.process;
        match line.kind {
            LineKind::Ok => actions.push((process, Action::Response(Step::Known(line.request)))),
            LineKind::Fail | LineKind::Info => {}
            LineKind::Invoke => match ends.get(&place).map(|end| (end.kind, end.request)) {
                Some((LineKind::Ok, answered)) => {
                    actions.push((process, Action::Call(Step::Known(answered))));
                }
                Some((LineKind::Fail, _)) => {}
                _ => {
                    if may_matter(line.request, &seen) {
                        let step = Step::Unknown(line.request);
                        actions.push((process, Action::Call(step)));
                        unknown.push((process, Action::Response(step)));
                    }
                }
            },
        }
    }
    let observer = lines.iter().map(|line| line.process + 1).max().unwrap_or_default();
    actions.push((observer, Action::Call(Step::End)));
    actions.push((observer, Action::Response(Step::End)));
    actions.extend(unknown);
    History::from_actions(actions)
}

/// Returns the last line of each request, by the place of its first line.
fn ends(lines: &[Line]) -> BTreeMap<usize, &Line> {
    let (mut open, mut ends) = (BTreeMap::new(), BTreeMap::new());
    for (place, line) in lines.iter().enumerate() {
        if line.kind == LineKind::Invoke {
            open.insert(line.process, place);
        } else if let Some(begin) = open.remove(&line.process) {
            ends.insert(begin, line);
        }
    }
    ends
}

/// Returns every value that a read returned or a compare-and-set expected.
fn seen(lines: &[Line]) -> BTreeSet<u64> {
    let value = |line: &Line| match line.request {
        Request::Read(value) | Request::Cas(value, _) => value,
        Request::Write(_) => None,
    };
    lines.iter().filter_map(value).collect()
}

/// Returns whether a request of unknown outcome can matter for the order. It does not matter if it reads, or if
/// it stores a value that no other request saw: each answered request shows the state that it found, so none of
/// them was applied between this one and the next write.
fn may_matter(request: Request, seen: &BTreeSet<u64>) -> bool {
    match request {
        Request::Read(_) => false,
        Request::Write(value) | Request::Cas(_, value) => {
            value.is_none_or(|value| seen.contains(&value))
        }
    }
}

#[cfg(test)]
mod tests {
    use todc_utils::WGLChecker;

    use super::*;

    /// Returns whether a history is linearizable. Each entry is a process, a type, an operation and a value.
    fn check(entries: &[(usize, &str, &str, &str)]) -> bool {
        let line = |(process, kind, f, value): &(usize, &str, &str, &str)| {
            let text = format!(
                r#"{{"index":0,"time":1,"process":{process},"type":"{kind}","f":"{f}","value":{value}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let lines: Vec<Line> = entries.iter().map(line).collect();
        WGLChecker::<Register>::is_linearizable(history(&lines))
    }

    const STORED: [(usize, &str, &str, &str); 2] =
        [(0, "invoke", "cas", "[null,7]"), (0, "ok", "cas", "[null,7]")];

    fn read(value: &str) -> [(usize, &str, &str, &str); 2] {
        [(0, "invoke", "read", "null"), (0, "ok", "read", value)]
    }

    #[test]
    fn a_read_sees_the_last_write() {
        assert!(check(&[STORED, read("7")].concat()));
        assert!(!check(&[STORED, read("null")].concat()));
        assert!(!check(&[STORED, read("8")].concat()));
    }

    #[test]
    fn an_unknown_write_applies_once_late_or_never() {
        let unknown = [(1, "invoke", "write", "8")];
        let info = [(1, "info", "write", "8")];
        for reads in [vec!["7", "7"], vec!["7", "8"], vec!["8", "8"]] {
            let reads: Vec<_> = reads.into_iter().flat_map(read).collect();
            let history = [&STORED[..], &unknown, &reads, &info].concat();
            assert!(check(&history), "{history:?}");
            assert!(check(&history[..history.len() - 1]), "{history:?}");
        }
        let twice = [read("8"), read("7")].concat();
        assert!(!check(&[&STORED[..], &unknown, &twice, &info].concat()));
    }

    #[test]
    fn an_unknown_compare_and_set_needs_its_condition() {
        let history = |cas| {
            let unknown = [(1, "invoke", "cas", cas)];
            [&STORED[..], &unknown, &read("8"), &[(1, "info", "cas", cas)]].concat()
        };
        assert!(check(&history("[7,8]")));
        assert!(!check(&history("[6,8]")));
    }

    #[test]
    fn an_unknown_delete_explains_one_missing_value() {
        let unknown = [(1, "invoke", "write", "null")];
        let info = [(1, "info", "write", "null")];
        let stored_again = [(0, "invoke", "cas", "[null,9]"), (0, "ok", "cas", "[null,9]")];
        let once = [&STORED[..], &unknown, &read("null"), &stored_again].concat();
        assert!(check(&[&once[..], &read("9"), &info].concat()));
        assert!(!check(&[&once[..], &read("null"), &info].concat()));
        let nothing_to_delete = [&unknown[..], &read("null"), &info].concat();
        assert!(check(&nothing_to_delete));
    }

    #[test]
    fn a_failed_request_is_not_applied() {
        let failed = [(1, "invoke", "write", "8"), (1, "fail", "write", "8")];
        assert!(check(&[&STORED[..], &failed, &read("7")].concat()));
        assert!(!check(&[&STORED[..], &failed, &read("8")].concat()));
    }
}
