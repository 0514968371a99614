//! Names in a plan that no sample item has, so they are probably misspelt.

use std::collections::BTreeSet;

use model::Item;

use super::reads::{Absent, AttributePath};
use super::{KeyTemplate, Migration, Output, OutputKind};

/// A part of a plan that matches no sample item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmatched {
    /// A condition or a transform reads a name that no item has.
    Read(Absent),
    /// A key template of a target names an attribute that no result of the transform has.
    Key(Absent),
    /// A split cuts at a path that no document has.
    Cut(Absent),
    /// A split cuts no value at a path, because no value at this path has a type that can be cut.
    NothingCut {
        /// The path.
        path: String,
        /// The types of the values, as DynamoDB names them, such as `M`.
        types: BTreeSet<&'static str>,
    },
}

impl Migration {
    /// Returns the parts of a plan that match none of the given items of a table. The result is empty
    /// if there are no items.
    #[must_use]
    pub fn unmatched(&self, table: &str, items: &[Item]) -> BTreeSet<Unmatched> {
        let visible: Vec<Item> =
            items.iter().filter_map(|item| self.visible(table, item)).collect();
        let mut unmatched = BTreeSet::new();
        for output in self.sources.get(table).into_iter().flatten() {
            let reads = match &output.kind {
                OutputKind::Transform(transform) => {
                    unmatched.extend(absent_in_keys(output, &visible));
                    transform.reads()
                }
                OutputKind::Purge(condition) => condition.reads(),
                OutputKind::Split(split) => {
                    let absent = split.paths().filter_map(|path| path.absent(&visible));
                    unmatched.extend(absent.map(Unmatched::Cut));
                    let uncut = split.uncut(&visible).into_iter();
                    unmatched
                        .extend(uncut.map(|(path, types)| Unmatched::NothingCut { path, types }));
                    continue;
                }
            };
            let absent = reads.iter().filter_map(|path| path.absent(&visible));
            unmatched.extend(absent.map(Unmatched::Read));
        }
        unmatched
    }
}

/// Applies an output to the given items, and returns the names in its key templates that no
/// resulting item has. Ignores items that the transform refuses.
fn absent_in_keys(output: &Output, items: &[Item]) -> Vec<Unmatched> {
    let made: Vec<Item> = items.iter().filter_map(|item| output.run(item).ok()).flatten().collect();
    let paths = output.key.values().flat_map(KeyTemplate::paths);
    let absent = paths.filter_map(|path| AttributePath::of_names(path).absent(&made));
    absent.map(Unmatched::Key).collect()
}
