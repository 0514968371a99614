//! A view of a group of which this node has no replica.
//!
//! A caller reads it like any view. A read of something that was not fetched yet finds nothing, and the
//! view remembers it. Then the caller fetches what the view remembers, and reads again from the start,
//! until a read has found everything. So code that reads needs no messages, and reads the same way from
//! a replica of its own and from another node.
//!
//! Each fetch asks for everything that was read so far, in one request. Therefore all results of a read
//! that has found everything come from one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use locks::Mutex;
use partition::{ReadError, Value, View, Visit};

use crate::remote::read::{Found, FoundRange, Wanted, WantedRange};

/// The number of bytes of a range that are fetched at first: enough for most requests.
const FIRST_BYTES: usize = 64 * 1024;
/// The factor by which the number of bytes grows with each fetch.
const GROWTH: usize = 8;
/// The maximum number of bytes of a range in one answer. It is larger than the largest page of any
/// request, which has 1 MB of items.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// A view over the answers of another node; see the module.
#[derive(Default)]
pub struct RemoteView {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<Vec<u8>, Option<Value>>,
    ranges: Vec<KnownRange>,
    /// Whether a read has asked for something that was not fetched.
    is_incomplete: bool,
    fetches: usize,
}

/// A range that was read, and the pairs from its beginning, in the order of the scan, that were
/// fetched. The pairs are shared, because a visitor may read the view again.
struct KnownRange {
    range: WantedRange,
    /// The number of bytes that were requested last; 0 before the first answer.
    requested_bytes: usize,
    found: Arc<FoundRange>,
}

impl KnownRange {
    fn new(range: WantedRange, found: Arc<FoundRange>) -> Self {
        Self { requested_bytes: range.bytes, range, found }
    }

    /// Returns whether a scan begins in the fetched part of this range, and ends in this range.
    fn has_beginning_of(&self, from: &[u8], to: &[u8], reverse: bool) -> bool {
        let Self { range, found, .. } = self;
        let is_inside = range.reverse == reverse && *range.from <= *from && *to <= *range.to;
        let is_same = if reverse { *range.to == *to } else { *range.from == *from };
        let reaches = |(last, _): &(Vec<u8>, Vec<u8>)| match reverse {
            false => *from <= **last,
            true => **last <= *to,
        };
        is_inside && (is_same || found.is_whole || found.pairs.last().is_some_and(reaches))
    }

    /// Returns whether the fetched part contains all pairs from `from` to `to`.
    fn has_all_of(&self, from: &[u8], to: &[u8]) -> bool {
        let reaches = |(last, _): &(Vec<u8>, Vec<u8>)| match self.range.reverse {
            false => *to <= **last,
            true => **last < *from,
        };
        self.found.is_whole || self.found.pairs.last().is_some_and(reaches)
    }
}

impl State {
    /// Returns the position of the range that a scan can be read from, which may be a new range without
    /// pairs.
    fn range_of(&mut self, from: &[u8], to: &[u8], reverse: bool) -> usize {
        let known = |known: &KnownRange| known.has_beginning_of(from, to, reverse);
        self.ranges.iter().position(known).unwrap_or_else(|| {
            let range = WantedRange { from: from.to_vec(), to: to.to_vec(), reverse, bytes: 0 };
            self.ranges.push(KnownRange::new(range, Arc::default()));
            self.ranges.len() - 1
        })
    }

    /// Requests more of a range with the next fetch.
    fn extend(&mut self, place: usize) -> Result<(), ReadError> {
        let Some(known) = self.ranges.get_mut(place) else { return Ok(()) };
        if known.requested_bytes >= BYTES_MAX {
            return Err(ReadError(format!("a request reads more than {BYTES_MAX} bytes at once")));
        }
        known.range.bytes = (known.requested_bytes * GROWTH).clamp(FIRST_BYTES, BYTES_MAX);
        self.is_incomplete = true;
        Ok(())
    }
}

impl RemoteView {
    /// Returns whether a read since the last answer has asked for more than was fetched.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.state.lock().is_incomplete
    }

    /// Returns everything that the reads so far have asked for, if they have asked for more than was
    /// fetched. Returns `None` if the reads since the last answer have found everything.
    #[must_use]
    pub fn missing(&self) -> Option<(Vec<Vec<u8>>, Vec<WantedRange>)> {
        let state = self.state.lock();
        if !state.is_incomplete {
            return None;
        }
        let ranges = state.ranges.iter().map(|known| known.range.clone());
        Some((state.keys.keys().cloned().collect(), ranges.collect()))
    }

    /// Replaces the known keys and ranges with the answer to a request.
    pub fn take(&self, wanted: Wanted, found: Found) {
        let values = found.values.into_iter().map(|value| value.map(Value::from));
        let ranges = wanted.ranges.into_iter().zip(found.ranges.into_iter().map(Arc::new));
        let mut state = self.state.lock();
        state.keys = wanted.keys.into_iter().zip(values).collect();
        state.ranges = ranges.map(|(range, found)| KnownRange::new(range, found)).collect();
        state.is_incomplete = false;
        state.fetches += 1;
    }

    /// Returns the number of answers so far.
    pub(crate) fn fetches(&self) -> usize {
        self.state.lock().fetches
    }
}

impl View for RemoteView {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        let mut state = self.state.lock();
        if let Some(value) = state.keys.get(key) {
            return Ok(value.clone());
        }
        state.keys.insert(key.to_vec(), None);
        state.is_incomplete = true;
        Ok(None)
    }

    fn fetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        let mut state = self.state.lock();
        for key in keys {
            if !state.keys.contains_key(key) {
                state.keys.insert(key.to_vec(), None);
                state.is_incomplete = true;
            }
        }
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        if from >= to {
            return Ok(());
        }
        let (place, found, has_all) = {
            let mut state = self.state.lock();
            let place = state.range_of(from, to, reverse);
            let known = state.ranges.get(place);
            let found = known.map(|known| Arc::clone(&known.found)).unwrap_or_default();
            (place, found, known.is_some_and(|known| known.has_all_of(from, to)))
        };
        for (key, value) in &found.pairs {
            if *from <= **key && **key < *to && visit(key, value).is_break() {
                return Ok(());
            }
        }
        if has_all { Ok(()) } else { self.state.lock().extend(place) }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::*;
    use crate::remote::read;
    use storage::{MemoryStorage, Storage as _};

    /// The first byte that no key begins with.
    const KEYS: u8 = 0xf0;

    /// A read of a view: a key, or the first pairs of a range.
    #[derive(Clone, Debug)]
    enum Step {
        Get(u8),
        Scan { from: u8, to: u8, reverse: bool, limit: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let scan = (0..KEYS, 0..KEYS, any::<bool>(), 1..40_usize);
        prop_oneof![
            (0..KEYS).prop_map(Step::Get),
            scan.prop_map(|(from, to, reverse, limit)| Step::Scan { from, to, reverse, limit }),
        ]
    }

    /// Executes the steps, and gets the value of each key that a scan visits, as a query of an index does.
    fn execute(view: &dyn View, steps: &[Step]) -> Vec<(Vec<u8>, Option<Value>)> {
        let mut found = Vec::new();
        for step in steps {
            match step {
                Step::Get(key) => found.push((vec![*key], view.get(&[*key]).unwrap())),
                Step::Scan { from, to, reverse, limit } => {
                    let mut left = *limit;
                    let scanned = view.scan(&[*from], &[*to], *reverse, &mut |key, _| {
                        found.push((key.to_vec(), view.get(key).unwrap()));
                        left -= 1;
                        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    });
                    scanned.unwrap();
                }
            }
        }
        found
    }

    proptest! {
        /// Goal: reads that fetch from another node return what direct reads return, whatever the sizes of the
        /// values.
        #[test]
        fn remote_reads_equal_direct_reads(
            sizes in prop::collection::btree_map(0..KEYS, 0..40_000_usize, 0..60),
            steps in prop::collection::vec(step(), 1..12),
        ) {
            let storage = MemoryStorage::new();
            let put = |(key, size): (u8, usize)| partition::Op::Put(vec![key], vec![key; size].into());
            let ops = sizes.into_iter().map(put).collect();
            storage.apply(&partition::Batch { ops }).unwrap();
            let direct = storage.view();
            let remote = RemoteView::default();
            let mut fetches = 0;
            let found = loop {
                let found = execute(&remote, &steps);
                let Some((keys, ranges)) = remote.missing() else { break found };
                let wanted = Wanted { is_strong: false, at_least: 0, keys, ranges };
                let found = read::find(&*direct, &wanted, (0, 0)).unwrap();
                remote.take(wanted, found);
                fetches += 1;
                prop_assert!(fetches < 64, "the reads do not end");
            };
            prop_assert_eq!(found, execute(&*direct, &steps));
        }
    }

    /// Goal: a page of one range costs few messages. Method: a scan of 1 MB in items of 1 KB.
    #[test]
    fn a_page_needs_three_messages() {
        let storage = MemoryStorage::new();
        let key = |number: u32| number.to_be_bytes().to_vec();
        let ops = (0..5_000).map(|number| partition::Op::Put(key(number), vec![7; 1_020].into()));
        storage.apply(&partition::Batch { ops: ops.collect() }).unwrap();
        let remote = RemoteView::default();
        let mut bytes = 0;
        while bytes < 1_024 * 1_024 {
            bytes = 0;
            let scanned = remote.scan(&key(0), &key(u32::MAX), false, &mut |key, value| {
                bytes += key.len() + value.len();
                if bytes < 1_024 * 1_024 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            scanned.unwrap();
            let Some((keys, ranges)) = remote.missing() else { continue };
            let wanted = Wanted { is_strong: false, at_least: 0, keys, ranges };
            let found = read::find(&*storage.view(), &wanted, (0, 0)).unwrap();
            remote.take(wanted, found);
        }
        assert_eq!(remote.fetches(), 3);
    }

    #[test]
    fn a_read_without_a_bound_is_refused() {
        let remote = RemoteView::default();
        let all = |view: &RemoteView| {
            view.scan(&[0], &[255], false, &mut |_, _| ControlFlow::Continue(()))
        };
        let mut last = Ok(());
        for _ in 0..10 {
            last = all(&remote);
            let Some((keys, ranges)) = remote.missing() else { break };
            let wanted = Wanted { is_strong: false, at_least: 0, keys, ranges };
            let ranges = vec![FoundRange { pairs: vec![(vec![1], vec![])], is_whole: false }];
            remote.take(wanted, Found { applied: 0, tables_version: 0, values: vec![], ranges });
        }
        assert!(last.unwrap_err().to_string().contains("at once"));
    }
}
