//! The checker of serializability. Transactions are serializable if all transactions and single
//! operations have an order in which each of them sees the result of the previous ones.
//!
//! The check needs only observations of clients: the item versions that each operation read and
//! wrote, and the order of each item's versions, from its stream records. These observations give
//! dependencies between two operations (Adya, "Weak consistency", 1999): the second read a version
//! that the first wrote (wr), the second replaced a version that the first wrote (ww), or the
//! second replaced a version that the first read (rw). Such an order exists exactly if the
//! dependencies have no cycle. Operations on one item are also linearizable: an operation that
//! ended before another operation began precedes it (rt). Real time implies no order between
//! operations on different items.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::linearizability::State;

/// The known effects of a transaction or a single operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The time when the transaction was sent, on the clients' logical clock.
    pub call: u64,
    /// The time when its answer arrived; `None` if its outcome is unknown.
    pub end: Option<u64>,
    /// The versions that the transaction saw, by key.
    pub reads: Vec<(String, State)>,
    /// The versions that the transaction stored, by key.
    pub writes: Vec<(String, u64)>,
}

/// The versions of each item, in the order in which they were stored. The item did not exist before
/// its first version.
pub type Versions = BTreeMap<String, Vec<u64>>;

/// A dependency in the graph: its target and its kind.
#[derive(Clone, Debug)]
struct Edge {
    to: usize,
    why: EdgeReason,
}

#[derive(Clone, Debug)]
enum EdgeReason {
    Wrote(String),
    Replaced(String),
    Overtook(String),
    Earlier(String),
}

impl EdgeReason {
    fn describe(&self) -> String {
        match self {
            Self::Wrote(key) => format!("wr {key}"),
            Self::Replaced(key) => format!("ww {key}"),
            Self::Overtook(key) => format!("rw {key}"),
            Self::Earlier(key) => format!("rt {key}"),
        }
    }
}

/// Checks all transactions against the order of their items' versions.
#[must_use]
pub fn check(transactions: &[Transaction], versions: &Versions) -> Vec<String> {
    let mut wrong = Vec::new();
    // An operation of unknown outcome was applied if any of its writes is in the versions.
    let there = |(key, id): &(String, u64)| versions.get(key).is_some_and(|v| v.contains(id));
    let made: Vec<&Transaction> = transactions
        .iter()
        .filter(|t| t.end.is_some() || t.writes.is_empty() || t.writes.iter().any(there))
        .collect();
    for transaction in &made {
        let missing: Vec<&str> =
            transaction.writes.iter().filter(|w| !there(w)).map(|(key, _)| key.as_str()).collect();
        if !missing.is_empty() {
            wrong.push(format!(
                "{} was applied in part: its write to {} is missing",
                name(transaction),
                missing.join(", ")
            ));
        }
    }
    let graph = build(&made, versions, &mut wrong);
    if let Some(cycle) = find_cycle(&graph) {
        wrong.push(describe(&made, &cycle));
    }
    wrong
}

fn name(transaction: &Transaction) -> String {
    let Transaction { call, end, reads, writes } = transaction;
    let end = end.map_or_else(|| "unknown".to_owned(), |end| end.to_string());
    format!("the transaction {call}..{end} (read {reads:?}, stored {writes:?})")
}

/// Returns the dependency graph. Its first nodes are the transactions; further nodes are points in
/// time of single items.
fn build(made: &[&Transaction], versions: &Versions, wrong: &mut Vec<String>) -> Vec<Vec<Edge>> {
    let mut graph = vec![Vec::new(); made.len()];
    let mut writers: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    let mut touched: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (place, transaction) in made.iter().enumerate() {
        for (key, id) in &transaction.writes {
            writers.insert((key, *id), place);
            touched.entry(key).or_default().insert(place);
        }
        for (key, _) in &transaction.reads {
            touched.entry(key).or_default().insert(place);
        }
    }
    let mut connect = |from: Option<&usize>, to: Option<&usize>, why: EdgeReason| {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
            && let Some(edges) = graph.get_mut(*from)
        {
            edges.push(Edge { to: *to, why });
        }
    };
    for key in touched.keys() {
        for pair in versions.get(*key).into_iter().flat_map(|order| order.windows(2)) {
            let [before, after] = pair else { continue };
            let writer = |id: &u64| writers.get(&(*key, *id));
            connect(writer(before), writer(after), EdgeReason::Replaced((*key).to_owned()));
        }
    }
    for (reader, transaction) in made.iter().enumerate() {
        for (key, seen) in &transaction.reads {
            let order = versions.get(key).map(Vec::as_slice).unwrap_or_default();
            let next = match seen {
                None => order.first(),
                Some(id) => match order.iter().position(|version| version == id) {
                    Some(place) => order.get(place + 1),
                    None => {
                        wrong.push(format!(
                            "{} saw the version {id} of {key}, but no transaction wrote it to this key",
                            name(transaction)
                        ));
                        continue;
                    }
                },
            };
            let writer = |id: u64| writers.get(&(key.as_str(), id));
            let writes_itself = |id: &u64| transaction.writes.contains(&(key.clone(), *id));
            connect(seen.and_then(writer), Some(&reader), EdgeReason::Wrote(key.clone()));
            if let Some(next) = next.filter(|next| !writes_itself(next)) {
                connect(Some(&reader), writer(*next), EdgeReason::Overtook(key.clone()));
            }
        }
    }
    for (key, places) in touched {
        order_by_time(made, key, &places, &mut graph);
    }
    graph
}

/// Adds the real-time order of operations on one item: an operation precedes all operations that
/// begin after its end. The edges go through a chain of points in time, so that their number is
/// linear.
fn order_by_time(
    made: &[&Transaction],
    key: &str,
    places: &BTreeSet<usize>,
    graph: &mut Vec<Vec<Edge>>,
) {
    let ended = |place: &usize| Some((made.get(*place)?.end?, *place));
    let mut ends: Vec<(u64, usize)> = places.iter().filter_map(ended).collect();
    ends.sort_unstable();
    let first_moment = graph.len();
    let why = || EdgeReason::Earlier(key.to_owned());
    for (number, (_, place)) in ends.iter().enumerate() {
        let moment = first_moment + number;
        graph.push(Vec::new());
        for from in [Some(*place), (number > 0).then(|| moment - 1)].into_iter().flatten() {
            if let Some(edges) = graph.get_mut(from) {
                edges.push(Edge { to: moment, why: why() });
            }
        }
    }
    for place in places {
        let Some(call) = made.get(*place).map(|transaction| transaction.call) else { continue };
        let before = ends.partition_point(|(end, _)| *end < call);
        if let Some(number) = before.checked_sub(1)
            && let Some(edges) = graph.get_mut(first_moment + number)
        {
            edges.push(Edge { to: *place, why: why() });
        }
    }
}

/// Returns a shortest cycle through one of the nodes that are in a cycle. The result contains the
/// cycle's nodes, each with the kind of its edge to the next node.
fn find_cycle(graph: &[Vec<Edge>]) -> Option<Vec<(usize, EdgeReason)>> {
    // A node without incoming edges is in no cycle. Such nodes are removed repeatedly, until only
    // nodes remain that may be in cycles.
    let mut incoming = vec![0_usize; graph.len()];
    for edge in graph.iter().flatten() {
        if let Some(count) = incoming.get_mut(edge.to) {
            *count += 1;
        }
    }
    let mut free: Vec<usize> =
        incoming.iter().enumerate().filter(|(_, n)| **n == 0).map(|(place, _)| place).collect();
    let mut gone = BTreeSet::new();
    while let Some(place) = free.pop() {
        gone.insert(place);
        for edge in graph.get(place).into_iter().flatten() {
            if let Some(count) = incoming.get_mut(edge.to) {
                *count -= 1;
                if *count == 0 {
                    free.push(edge.to);
                }
            }
        }
    }
    let left = (0..graph.len()).filter(|place| !gone.contains(place));
    left.filter_map(|start| shortest_way_back(graph, start, &gone)).min_by_key(Vec::len)
}

/// Returns the shortest path from a node back to the same node.
fn shortest_way_back(
    graph: &[Vec<Edge>],
    start: usize,
    gone: &BTreeSet<usize>,
) -> Option<Vec<(usize, EdgeReason)>> {
    let mut came: BTreeMap<usize, (usize, EdgeReason)> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(place) = open.pop_front() {
        for edge in graph.get(place).into_iter().flatten() {
            if gone.contains(&edge.to) || came.contains_key(&edge.to) {
                continue;
            }
            came.insert(edge.to, (place, edge.why.clone()));
            if edge.to != start {
                open.push_back(edge.to);
                continue;
            }
            let mut way = Vec::new();
            let mut at = start;
            while let Some((from, why)) = came.get(&at).cloned() {
                way.push((from, why));
                if from == start {
                    way.reverse();
                    return Some(way);
                }
                at = from;
            }
            return None;
        }
    }
    None
}

fn describe(made: &[&Transaction], cycle: &[(usize, EdgeReason)]) -> String {
    // The description omits the nodes that are points in time.
    let steps: Vec<String> = cycle
        .iter()
        .filter_map(|(place, why)| Some((made.get(*place)?, why)))
        .map(|(transaction, why)| format!("\n    {} -{}->", name(transaction), why.describe()))
        .collect();
    format!(
        "these transactions have no order, because each must precede the next:{}",
        steps.concat()
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn transaction(
        time: (u64, u64),
        reads: &[(&str, State)],
        writes: &[(&str, u64)],
    ) -> Transaction {
        Transaction {
            call: time.0,
            end: Some(time.1),
            reads: reads.iter().map(|(key, seen)| ((*key).to_owned(), *seen)).collect(),
            writes: writes.iter().map(|(key, id)| ((*key).to_owned(), *id)).collect(),
        }
    }

    fn versions(of: &[(&str, &[u64])]) -> Versions {
        of.iter().map(|(key, order)| ((*key).to_owned(), order.to_vec())).collect()
    }

    #[test]
    fn planted_anomalies_are_found() {
        let both = transaction((1, 2), &[], &[("a", 1), ("b", 2)]);
        let after = versions(&[("a", &[1]), ("b", &[2])]);
        let unknown = Transaction { end: None, ..both.clone() };
        let cases = [
            ("honest", vec![both.clone()], after.clone(), None),
            ("half", vec![both.clone()], versions(&[("a", &[1])]), Some("in part")),
            ("half unknown", vec![unknown.clone()], versions(&[("b", &[2])]), Some("in part")),
            ("unknown, not applied", vec![unknown], Versions::new(), None),
            (
                "fractured read",
                vec![both.clone(), transaction((1, 3), &[("a", Some(1)), ("b", None)], &[])],
                after.clone(),
                Some("no order"),
            ),
            (
                "write skew",
                vec![
                    transaction((1, 9), &[("a", None)], &[("b", 2)]),
                    transaction((1, 9), &[("b", None)], &[("a", 1)]),
                ],
                after.clone(),
                Some("no order"),
            ),
            (
                "writes in two orders",
                vec![
                    transaction((1, 9), &[], &[("a", 1), ("b", 4)]),
                    transaction((1, 9), &[], &[("a", 3), ("b", 2)]),
                ],
                versions(&[("a", &[1, 3]), ("b", &[2, 4])]),
                Some("no order"),
            ),
            (
                "the later transaction is earlier in the order",
                vec![transaction((1, 2), &[], &[("a", 1)]), transaction((3, 4), &[], &[("a", 2)])],
                versions(&[("a", &[2, 1])]),
                Some("no order"),
            ),
            (
                "times of different items imply nothing",
                vec![
                    transaction((1, 2), &[("b", None)], &[("a", 1)]),
                    transaction((3, 4), &[("c", None)], &[("b", 2)]),
                    transaction((5, 9), &[("a", None)], &[("c", 3)]),
                ],
                versions(&[("a", &[1]), ("b", &[2]), ("c", &[3])]),
                Some("no order"),
            ),
            (
                "a read from the past of other items",
                vec![both, transaction((5, 6), &[("c", None)], &[])],
                after,
                None,
            ),
        ];
        for (title, history, versions, expected) in cases {
            let wrong = check(&history, &versions);
            match expected {
                None => assert!(wrong.is_empty(), "{title}: {wrong:?}"),
                Some(text) => {
                    assert!(wrong.iter().any(|w| w.contains(text)), "{title}: {wrong:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_that_was_never_stored_is_found() {
        let wrong = check(&[transaction((1, 2), &[("a", Some(7))], &[])], &Versions::new());
        assert!(wrong[0].contains("no transaction wrote it"), "{wrong:?}");
    }

    /// Runs transactions one after the other, and returns the history. The times of two transactions do not
    /// overlap.
    fn serial(steps: &[(u8, u8, u8)]) -> (Vec<Transaction>, Versions) {
        let key = |number: u8| format!("k{}", number % 4);
        let (mut history, mut versions) = (Vec::new(), Versions::new());
        for (number, (read, write, slack)) in (1_u64..).zip(steps) {
            let seen = |k: &String, all: &Versions| all.get(k).and_then(|o| o.last().copied());
            let (read, write) = (key(*read), key(*write));
            history.push(Transaction {
                call: (10 * number).saturating_sub(u64::from(*slack)),
                end: Some(10 * number + u64::from(*slack)),
                reads: vec![(read.clone(), seen(&read, &versions))],
                writes: vec![(write.clone(), number)],
            });
            versions.entry(write).or_default().push(number);
        }
        (history, versions)
    }

    proptest! {
        #[test]
        fn serial_transactions_are_serializable(
            steps in prop::collection::vec((any::<u8>(), any::<u8>(), 0_u8..40), 1..60)
        ) {
            let (history, versions) = serial(&steps);
            prop_assert_eq!(check(&history, &versions), Vec::<String>::new());
        }

        #[test]
        fn a_stale_read_of_two_items_is_found(
            steps in prop::collection::vec((any::<u8>(), any::<u8>(), 0_u8..40), 1..60)
        ) {
            let (mut history, mut versions) = serial(&steps);
            // One transaction replaces both items. A read then sees one old and one new version.
            let last = |key: &str, all: &Versions| all.get(key).and_then(|o| o.last().copied());
            let old = last("k0", &versions);
            history.push(transaction((5_000, 5_001), &[], &[("k0", 901), ("k1", 902)]));
            versions.entry("k0".to_owned()).or_default().push(901);
            versions.entry("k1".to_owned()).or_default().push(902);
            history.push(transaction((5_000, 5_002), &[("k0", old), ("k1", Some(902))], &[]));
            prop_assert!(check(&history, &versions).iter().any(|w| w.contains("no order")));
        }
    }
}
