//! Decides whether a system has settled, so that no record waits: the rule of
//! `weir status --exit-code`.
//!
//! One status is not enough: recent writes may not have been read yet, and functions may write to
//! tables with streams in response. The check therefore needs two statuses. In the first status, no
//! record waits. In the second status, every shard was read completely after the first status, and
//! no record arrived.
//!
//! The module is pure: it reads no file and does not wait.

use serde_json::Value;

use local::status::list;

/// The result of examining one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettledCheck {
    /// The status is older than the command, or not every shard was read since the first status.
    TooEarly,
    /// No record waited in the first status, and no record arrived after it.
    Settled,
}

/// The statuses that were compared so far.
#[derive(Debug)]
pub(super) struct SettledSearch {
    started_ms: i64,
    /// The tick of the first status without waiting records, and the number of records read by that
    /// tick.
    first: Option<(u64, u64)>,
}

impl SettledSearch {
    /// Returns an empty comparison for a command that started at this time, in milliseconds since 1970
    /// by this machine's clock.
    pub(super) fn asked_at(started_ms: i64) -> Self {
        Self { started_ms, first: None }
    }

    /// Compares a status that has no waiting records with the first such status.
    pub(super) fn check(&mut self, status: &Value) -> SettledCheck {
        let number = |name: &str| status.get(name).and_then(Value::as_u64);
        let taken = status.get("taken_ms").and_then(Value::as_i64);
        let (Some(tick), Some(taken)) = (number("tick_ms"), taken) else {
            return SettledCheck::TooEarly;
        };
        if taken < self.started_ms {
            return SettledCheck::TooEarly;
        }
        let read = read(status);
        let Some((first, known)) = self.first else {
            self.first = Some((tick, read));
            return SettledCheck::TooEarly;
        };
        if !list(status, "mappings").iter().all(|mapping| is_read_after(mapping, first)) {
            return SettledCheck::TooEarly;
        }
        if read != known {
            self.first = Some((tick, read));
            return SettledCheck::TooEarly;
        }
        SettledCheck::Settled
    }

    /// Returns the names of the mappings with shards that were not read since the first status.
    pub(super) fn unread<'s>(&self, status: &'s Value) -> Vec<&'s str> {
        let Some((first, _)) = self.first else { return Vec::new() };
        let unread = list(status, "mappings").iter().filter(|it| !is_read_after(it, first));
        unread.filter_map(|mapping| mapping.get("mapping")?.as_str()).collect()
    }
}

/// Returns the number of records read since the system started.
fn read(status: &Value) -> u64 {
    let of = |mapping: &Value| mapping.pointer("/totals/read").and_then(Value::as_u64);
    list(status, "mappings").iter().filter_map(of).sum()
}

/// Returns whether each shard was read up to its newest record by a request at the tick or later. A
/// shard that has ended counts as read if its children are known.
fn is_read_after(mapping: &Value, tick: u64) -> bool {
    let is_true = |of: &Value, name: &str| of.get(name) == Some(&Value::Bool(true));
    list(mapping, "shards").iter().all(|shard| {
        if shard.get("state").and_then(Value::as_str) == Some("done") {
            return !is_true(shard, "lacks_child");
        }
        shard.get("tip_tick_ms").and_then(Value::as_u64).is_some_and(|tip| tip >= tick)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(taken: i64, tick: u64, mappings: &[(u64, u64)]) -> Value {
        let mapping = |(at, (tip, read)): (usize, &(u64, u64))| {
            json!({
                "mapping": format!("m{at}"), "totals": {"read": read},
                "shards": [
                    {"state": "done", "tip_tick_ms": null, "lacks_child": false},
                    {"state": "caught up", "tip_tick_ms": tip},
                ],
            })
        };
        let mappings: Vec<Value> = mappings.iter().enumerate().map(mapping).collect();
        json!({"taken_ms": taken, "tick_ms": tick, "mappings": mappings})
    }

    #[test]
    fn two_statuses_after_the_question_have_to_agree() {
        let mut settling = SettledSearch::asked_at(100);
        let looks = [
            (
                status(99, 10, &[(10, 1), (10, 0)]),
                SettledCheck::TooEarly,
                "the status is older than the question",
            ),
            (status(100, 20, &[(12, 1), (11, 0)]), SettledCheck::TooEarly, "the first look"),
            (status(110, 30, &[(25, 1), (19, 0)]), SettledCheck::TooEarly, "m1 was not read since"),
            (
                status(120, 40, &[(35, 1), (32, 1)]),
                SettledCheck::TooEarly,
                "m1 has read the records that m0 caused",
            ),
            (status(130, 50, &[(41, 1), (38, 1)]), SettledCheck::TooEarly, "m1 was not read since"),
            (status(140, 60, &[(41, 1), (40, 1)]), SettledCheck::Settled, "nothing came"),
        ];
        for (status, expected, why) in looks {
            assert_eq!(settling.check(&status), expected, "{why}");
        }
        assert_eq!(settling.unread(&status(150, 70, &[(39, 1), (45, 1)])), ["m0"]);
    }

    #[test]
    fn an_ended_shard_waits_for_its_children() {
        let over =
            |lacks_child: bool| json!({"shards": [{"state": "done", "lacks_child": lacks_child}]});
        assert!(is_read_after(&over(false), 1));
        assert!(!is_read_after(&over(true), 1));
    }

    #[test]
    fn a_status_of_another_version_is_never_settled() {
        let mut settling = SettledSearch::asked_at(0);
        let old = json!({"schema": "weir.status/v1", "mappings": []});
        assert_eq!([settling.check(&old), settling.check(&old)], [SettledCheck::TooEarly; 2]);
    }
}
