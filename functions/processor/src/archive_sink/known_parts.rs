//! Cache of the event ids in parts of the archive.
//!
//! Parts never change, so a cached part stays valid. A part may be removed and a new part created
//! under the same name; the entity tag distinguishes the two. This module reads no object itself.

use std::collections::{BTreeMap, VecDeque};

use super::part_content::PartContent;

/// Maximum memory of all cached parts in bytes, out of the function's 256 MB: about 800,000 events.
/// The cache must hold the minutes that are being written; otherwise each invocation would read
/// their parts again. 20 shards at 500 expired items per second write 600,000 events in one minute.
/// Parts of earlier minutes are rarely needed and can be read again.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Memory of one event id in its set, including the set's spare capacity.
const EVENT_ID_BYTES: usize = 40;
/// Memory of a part in addition to its event ids: two copies of its name, its entity tag, and its
/// entries in both collections.
const PART_BYTES: usize = 600;

/// A cache of event ids by part. It evicts the oldest entries first.
#[derive(Debug, Default)]
pub(super) struct KnownParts {
    parts: BTreeMap<String, (String, PartContent)>,
    order: VecDeque<String>,
    bytes: usize,
}

fn bytes_of(content: &PartContent) -> usize {
    PART_BYTES + content.event_ids.len() * EVENT_ID_BYTES
}

impl KnownParts {
    /// Returns the event ids in a part, if they are cached.
    pub(super) fn get(&self, name: &str, entity_tag: &str) -> Option<PartContent> {
        let (known_tag, content) = self.parts.get(name)?;
        (known_tag == entity_tag).then(|| content.clone())
    }

    /// Caches the event ids in a part.
    pub(super) fn insert(&mut self, name: String, entity_tag: String, content: PartContent) {
        if self.forget(&name) {
            self.order.retain(|known| *known != name);
        }
        self.bytes += bytes_of(&content);
        self.order.push_back(name.clone());
        self.parts.insert(name, (entity_tag, content));
        while self.bytes > BYTES_MAX && self.order.len() > 1 {
            let Some(oldest) = self.order.pop_front() else { break };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, name: &str) -> bool {
        let forgotten = self.parts.remove(name);
        self.bytes -= forgotten.as_ref().map_or(0, |(_, content)| bytes_of(content));
        forgotten.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_tags_are_compared() {
        let mut known = KnownParts::default();
        let ids = |count: usize| {
            let ids: Vec<String> = (0..count).map(|id| id.to_string()).collect();
            PartContent::of_event_ids(ids.iter().map(String::as_str))
        };
        known.insert("a".to_owned(), "1".to_owned(), ids(3));
        assert_eq!(known.get("a", "1").unwrap().event_ids.len(), 3);
        assert!(known.get("a", "2").is_none());
        known.insert("a".to_owned(), "2".to_owned(), ids(4));
        assert!(known.get("a", "1").is_none());
        let tenth = ids((BYTES_MAX / 10 - PART_BYTES) / EVENT_ID_BYTES);
        for part in 0..50 {
            known.insert(format!("b{part}"), String::new(), tenth.clone());
            assert!(known.bytes <= BYTES_MAX);
            assert_eq!(known.order.len(), known.parts.len());
        }
        assert!(known.get("a", "2").is_none());
        assert!(known.get("b49", "").is_some() && known.get("b39", "").is_none());
        known.insert("huge".to_owned(), String::new(), ids(BYTES_MAX / EVENT_ID_BYTES + 1));
        assert!(known.get("huge", "").is_some() && known.get("b49", "").is_none());
        // Parts with a single row take memory too.
        for part in 0..BYTES_MAX / PART_BYTES {
            known.insert(format!("c{part}"), String::new(), ids(1));
        }
        assert!(known.bytes <= BYTES_MAX && known.get("c0", "").is_none());
    }
}
