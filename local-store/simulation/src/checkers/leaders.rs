//! Checks that no term of an arc has two leaders. A client may not notice the second one, but each of two leaders can
//! acknowledge writes that the other does not have.

use std::collections::BTreeMap;

/// The leader of each term of each arc that was observed.
#[derive(Clone, Debug, Default)]
pub struct Leaders(BTreeMap<(u32, u64), u64>);

impl Leaders {
    /// Records that a node leads a term of an arc. Returns the violation if another node has led this term.
    #[must_use]
    pub fn observe(&mut self, arc: u32, term: u64, node: u64) -> Option<String> {
        let first = *self.0.entry((arc, term)).or_insert(node);
        let what = || format!("arc {arc}: term {term} has the leaders {first} and {node}");
        (first != node).then(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_leader_of_a_term_is_named() {
        let mut leaders = Leaders::default();
        for (arc, term, node) in [(0, 3, 1), (0, 3, 1), (0, 4, 2), (1, 3, 2)] {
            assert_eq!(leaders.observe(arc, term, node), None);
        }
        let found = leaders.observe(0, 4, 1);
        assert_eq!(found.unwrap(), "arc 0: term 4 has the leaders 2 and 1");
    }
}
