//! The checker of linearizability. The history of an item is linearizable if its operations have an
//! order that agrees with real time, and in which each operation sees the result of the previous
//! operations.
//!
//! The search uses the algorithm of Wing and Gong ("Testing and verifying concurrent objects",
//! 1993), with Lowe's cache of visited configurations ("Testing for linearizability", 2017). The
//! search is fast, because most steps have only one choice: every write stores a unique value, and
//! every completed operation returns the state that it found (`ALL_OLD`).

use std::collections::{BTreeMap, HashSet};

/// The state of an item: the number that its last writer stored, or nothing.
pub type State = Option<u64>;

/// One operation on one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The time when the operation was sent, on one logical clock of all clients.
    pub call: u64,
    /// The time when the operation ended, on the same clock, and the state that it found. `None` if
    /// the outcome is unknown: the operation may be applied at any time after `call`, or never.
    pub seen: Option<(u64, State)>,
    /// The kind of operation.
    pub kind: Kind,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads the item. A write whose condition failed also counts as a read.
    Read,
    /// Stores a value that no other operation of the history stores.
    Write(u64),
    /// Stores a unique value if the item is in the given state.
    WriteIf(State, u64),
    /// Deletes the item.
    Delete,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The history is linearizable.
    Linearizable,
    /// The history is not linearizable.
    Violated,
    /// The search was abandoned, because there were too many configurations or too many concurrent
    /// operations.
    TooHard,
}

/// The number of 64-bit words of the window. The window covers 512 operations, from the oldest
/// operation that is not in the order yet.
const WINDOW_WORDS: usize = 8;
const WINDOW_OPERATIONS: usize = WINDOW_WORDS * 64;
/// The maximum number of deletes of unknown outcome, which are indistinguishable because they store
/// no value.
const OPEN_DELETES_MAX: usize = 64;

/// An operation whose position in the order must be found.
#[derive(Clone, Copy)]
struct Step {
    call: u64,
    end: u64,
    /// The state that the operation must find; `None` if any state is allowed.
    from: Option<State>,
    to: State,
}

/// A configuration of the search.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Configuration {
    /// The index of the first step that is not in the order yet.
    prefix: usize,
    /// The steps from `prefix` on that are in the order, one bit each.
    window: [u64; WINDOW_WORDS],
    /// The deletes of unknown outcome that were applied, one bit each.
    deletes: u64,
    state: State,
}

impl Configuration {
    fn has(&self, offset: usize) -> bool {
        self.window.get(offset / 64).is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    /// Returns the configuration after one more step was added to the order.
    fn with(mut self, offset: usize, state: State) -> Self {
        if let Some(word) = self.window.get_mut(offset / 64) {
            *word |= 1 << (offset % 64);
        }
        while self.has(0) {
            let mut carry = 0;
            for word in self.window.iter_mut().rev() {
                let low = *word & 1;
                *word = *word >> 1 | carry << 63;
                carry = low;
            }
            self.prefix += 1;
        }
        Self { state, ..self }
    }
}

/// Checks a history of an item that begins in state `initial`. Gives up after `budget`
/// configurations.
#[must_use]
pub fn check(operations: &[Operation], initial: State, budget: usize) -> Verdict {
    let (steps, deletes) = arrange(operations);
    if deletes.len() > OPEN_DELETES_MAX {
        return Verdict::TooHard;
    }
    let start = Configuration { prefix: 0, window: [0; WINDOW_WORDS], deletes: 0, state: initial };
    let mut visited = HashSet::from([start]);
    let mut open = vec![start];
    while let Some(configuration) = open.pop() {
        if configuration.prefix == steps.len() {
            return Verdict::Linearizable;
        }
        if visited.len() > budget {
            return Verdict::TooHard;
        }
        let Some(choices) = choices(&steps, &deletes, &configuration) else {
            return Verdict::TooHard;
        };
        // The earliest step is on top of the stack, so it is tried first.
        for next in choices.into_iter().rev() {
            if visited.insert(next) {
                open.push(next);
            }
        }
    }
    Verdict::Violated
}

/// Returns the configurations that can follow this configuration; `None` if the window is too small
/// for them.
fn choices(steps: &[Step], deletes: &[u64], now: &Configuration) -> Option<Vec<Configuration>> {
    let mut found = Vec::new();
    // The order must respect real time: an operation precedes all operations that begin after its end.
    let mut deadline = u64::MAX;
    for (offset, step) in steps.get(now.prefix..)?.iter().enumerate() {
        if step.call > deadline {
            break;
        }
        if offset >= WINDOW_OPERATIONS {
            return None;
        }
        if now.has(offset) {
            continue;
        }
        deadline = deadline.min(step.end);
        if step.from.is_none_or(|from| from == now.state) {
            found.push(now.with(offset, step.to));
        }
    }
    if now.state.is_some() {
        for (number, call) in deletes.iter().enumerate() {
            if now.deletes >> number & 1 == 0 && *call < deadline {
                let deletes = now.deletes | 1 << number;
                found.push(Configuration { deletes, state: None, ..*now });
                // The remaining deletes of unknown outcome are equivalent to this one, so one
                // choice is enough.
                break;
            }
        }
    }
    Some(found)
}

/// Returns the steps, sorted by the times at which they began, and the time at which each delete of
/// unknown outcome began.
///
/// A write of unknown outcome is omitted if no operation saw its value. That is safe: every
/// completed operation returns the state that it found, so no operation was ordered between such a
/// write and the next write. If an operation saw its value, the write was applied before the first
/// such operation ended.
fn arrange(operations: &[Operation]) -> (Vec<Step>, Vec<u64>) {
    let mut steps = Vec::with_capacity(operations.len());
    let mut deletes = Vec::new();
    // For each value: the end of the first operation that saw it.
    let mut seen_by: BTreeMap<u64, u64> = BTreeMap::new();
    for (end, seen) in operations.iter().filter_map(|operation| operation.seen) {
        if let Some(value) = seen {
            seen_by.entry(value).and_modify(|first| *first = end.min(*first)).or_insert(end);
        }
    }
    let mut unknown: Vec<(u64, Option<State>, u64)> = Vec::new();
    for operation in operations {
        let Operation { call, seen, kind } = operation;
        match (seen, kind) {
            (Some((end, from)), kind) => {
                let to = match kind {
                    Kind::Read => *from,
                    Kind::Write(value) | Kind::WriteIf(_, value) => Some(*value),
                    Kind::Delete => None,
                };
                steps.push(Step { call: *call, end: *end, from: Some(*from), to });
            }
            (None, Kind::Read) => {}
            (None, Kind::Write(value)) => unknown.push((*call, None, *value)),
            (None, Kind::WriteIf(from, value)) => unknown.push((*call, Some(*from), *value)),
            (None, Kind::Delete) => deletes.push(*call),
        }
    }
    // If the value of a conditional write was seen, the write was applied, so it saw the value in
    // its condition. The loop repeats until no further value is found.
    loop {
        let before = unknown.len();
        unknown.retain(|(call, from, value)| {
            let Some(end) = seen_by.get(value).copied() else { return true };
            steps.push(Step { call: *call, end, from: *from, to: Some(*value) });
            if let Some(Some(asked)) = from {
                seen_by.entry(*asked).and_modify(|first| *first = end.min(*first)).or_insert(end);
            }
            false
        });
        if unknown.len() == before {
            break;
        }
    }
    steps.sort_by_key(|step| step.call);
    deletes.sort_unstable();
    (steps, deletes)
}

/// Returns the shortest prefix of a history, by the end of its last operation, that violates
/// linearizability. Later operations are not needed to understand the violation.
#[must_use]
pub fn shortest_violation(
    operations: &[Operation],
    initial: State,
    budget: usize,
) -> Vec<Operation> {
    let mut ends: Vec<u64> =
        operations.iter().filter_map(|operation| Some(operation.seen?.0)).collect();
    ends.sort_unstable();
    let violated =
        |end: &u64| check(&until(operations, *end), initial, budget) == Verdict::Violated;
    let first = ends.partition_point(|end| !violated(end));
    ends.get(first).map_or_else(|| operations.to_vec(), |end| until(operations, *end))
}

/// Returns the part of the history that the clients knew at the time `end`.
fn until(operations: &[Operation], end: u64) -> Vec<Operation> {
    let begun = operations.iter().filter(|operation| operation.call <= end);
    begun
        .map(|operation| Operation {
            seen: operation.seen.filter(|(ended, _)| *ended <= end),
            ..operation.clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use storage::disk::SplitMix64;

    use super::*;

    const BUDGET: usize = 200_000;

    fn done(call: u64, end: u64, seen: State, kind: Kind) -> Operation {
        Operation { call, seen: Some((end, seen)), kind }
    }

    fn unknown(call: u64, kind: Kind) -> Operation {
        Operation { call, seen: None, kind }
    }

    type Case = (&'static str, Vec<Operation>, Verdict);

    fn check_all(cases: Vec<Case>) {
        for (name, history, verdict) in cases {
            assert_eq!(check(&history, None, BUDGET), verdict, "{name}");
        }
    }

    #[test]
    fn small_histories_have_the_right_verdict() {
        use Kind::{Delete, Read, Write};
        use Verdict::{Linearizable, Violated};
        let write = done(1, 2, None, Write(7));
        let read = |call, end, seen| done(call, end, seen, Read);
        check_all(vec![
            ("nothing", vec![], Linearizable),
            (
                "a read sees the earlier write",
                vec![write.clone(), read(3, 4, Some(7))],
                Linearizable,
            ),
            ("a stale read", vec![write.clone(), read(3, 4, None)], Violated),
            (
                "a concurrent read may see either value",
                vec![done(1, 4, None, Write(7)), read(2, 3, Some(7)), read(2, 6, None)],
                Linearizable,
            ),
            (
                "a later read does not see an older value",
                vec![done(1, 9, None, Write(7)), read(2, 3, Some(7)), read(4, 5, None)],
                Violated,
            ),
            ("a value that was never stored", vec![read(1, 2, Some(9))], Violated),
            (
                "two writes replace the same value",
                vec![write.clone(), done(3, 4, Some(7), Write(8)), done(5, 6, Some(7), Write(9))],
                Violated,
            ),
            (
                "a delete returns the value that it removes",
                vec![write, done(3, 4, Some(7), Delete), read(5, 6, None)],
                Linearizable,
            ),
        ]);
    }

    #[test]
    fn operations_of_unknown_outcome_apply_once_late_or_never() {
        use Kind::{Delete, Read, Write, WriteIf};
        use Verdict::{Linearizable, Violated};
        let write = done(1, 2, None, Write(7));
        let read = |call, end, seen| done(call, end, seen, Read);
        check_all(vec![
            ("no read sees the write", vec![unknown(1, Write(7)), read(2, 3, None)], Linearizable),
            (
                "the write takes effect late",
                vec![unknown(1, Write(7)), read(2, 3, None), read(4, 5, Some(7))],
                Linearizable,
            ),
            (
                "the write takes effect only once",
                vec![unknown(1, Write(7)), done(2, 3, Some(7), Write(8)), read(4, 5, Some(7))],
                Violated,
            ),
            (
                "a conditional write needs its condition",
                vec![unknown(1, WriteIf(Some(5), 7)), read(4, 5, Some(7))],
                Violated,
            ),
            (
                "a delete explains a missing value",
                vec![write.clone(), unknown(3, Delete), read(4, 5, Some(7)), read(6, 7, None)],
                Linearizable,
            ),
            (
                "one delete explains only one missing value",
                vec![write, unknown(3, Delete), done(4, 5, None, Write(8)), read(6, 7, None)],
                Violated,
            ),
        ]);
    }

    /// Returns a correct history of `clients` concurrent clients that use a real register.
    fn honest(seed: u64, clients: usize, count: usize) -> Vec<Operation> {
        let mut random = SplitMix64::new(seed);
        let (mut clock, mut state, mut history) = (0, None, Vec::new());
        let mut busy: Vec<Option<(u64, Kind, Option<State>)>> = vec![None; clients];
        while history.len() < count {
            clock += 1;
            let client = random.up_to(clients - 1);
            busy[client] = match busy[client].take() {
                None => {
                    let value = clock;
                    let kind = match random.up_to(9) {
                        0..4 => Kind::Read,
                        4..8 => Kind::Write(value),
                        _ => Kind::Delete,
                    };
                    Some((clock, kind, None))
                }
                Some((call, kind, None)) => {
                    let seen = state;
                    state = match kind {
                        Kind::Read => state,
                        Kind::Write(value) | Kind::WriteIf(_, value) => Some(value),
                        Kind::Delete => None,
                    };
                    Some((call, kind, Some(seen)))
                }
                Some((call, kind, Some(seen))) => {
                    let known = random.up_to(30) > 0;
                    history.push(Operation { call, seen: known.then_some((clock, seen)), kind });
                    None
                }
            };
        }
        let unfinished = busy.into_iter().flatten();
        history.extend(unfinished.map(|(call, kind, _)| Operation { call, seen: None, kind }));
        history
    }

    #[test]
    fn honest_histories_pass_and_planted_stale_reads_do_not() {
        let mut planted = 0;
        for seed in 0..60 {
            let mut history = honest(seed, 8, 600);
            assert_eq!(check(&history, None, BUDGET), Verdict::Linearizable, "seed {seed}");
            // The last read is changed to see an early value that was overwritten long before.
            let old = history.iter().find_map(|operation| match operation.kind {
                Kind::Write(value) if operation.seen.is_some() => Some(value),
                _ => None,
            });
            let last = history
                .iter_mut()
                .rev()
                .find(|operation| operation.kind == Kind::Read && operation.seen.is_some());
            if let (Some(old), Some(last)) = (old, last) {
                last.seen = last.seen.map(|(end, _)| (end, Some(old)));
                assert_eq!(check(&history, None, BUDGET), Verdict::Violated, "seed {seed}");
                let short = shortest_violation(&history, None, BUDGET);
                assert!(short.len() <= history.len());
                assert_eq!(check(&short, None, BUDGET), Verdict::Violated, "seed {seed}");
                planted += 1;
            }
        }
        assert!(planted > 50, "{planted}");
    }

    /// Tries every order of the operations. Operations of unknown outcome may be omitted.
    fn brute_force(rest: &[Operation], state: State) -> bool {
        if rest.iter().all(|operation| operation.seen.is_none()) {
            return true;
        }
        let deadline = rest.iter().filter_map(|o| Some(o.seen?.0)).min().unwrap_or(u64::MAX);
        (0..rest.len()).any(|place| {
            let operation = &rest[place];
            if operation.call > deadline || operation.seen.is_some_and(|(_, seen)| seen != state) {
                return false;
            }
            let next = match operation.kind {
                Kind::Read => state,
                Kind::Write(value) => Some(value),
                Kind::WriteIf(from, value) if from == state || operation.seen.is_some() => {
                    Some(value)
                }
                Kind::WriteIf(..) => state,
                Kind::Delete => None,
            };
            let mut rest = rest.to_vec();
            rest.remove(place);
            brute_force(&rest, next)
        })
    }

    fn operation() -> impl Strategy<Value = (u64, u64, Option<Option<u8>>, u8, Option<u8>)> {
        (
            0..20u64,
            1..10u64,
            prop::option::weighted(0.8, prop::option::of(0u8..6)),
            0u8..4,
            prop::option::of(0u8..6),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn agrees_with_trying_every_order(drawn in prop::collection::vec(operation(), 1..7)) {
            let history: Vec<Operation> = (0u64..).zip(drawn).map(|(value, (call, length, seen, kind, asked))| {
                // All times are different, so that no end equals a beginning.
                let (call, end) = (call * 100 + value, (call + length) * 100 + 50 + value);
                let seen = seen.map(|seen| (end, seen.map(u64::from)));
                let asked = asked.map(u64::from);
                let kind = match kind {
                    0 => Kind::Read,
                    1 => Kind::Write(value),
                    2 if seen.is_none_or(|(_, seen)| seen == asked) => Kind::WriteIf(asked, value),
                    2 => Kind::Read,
                    _ => Kind::Delete,
                };
                Operation { call, seen, kind }
            }).collect();
            let expected = if brute_force(&history, None) { Verdict::Linearizable } else { Verdict::Violated };
            prop_assert_eq!(check(&history, None, BUDGET), expected, "{:#?}", history);
        }
    }
}
