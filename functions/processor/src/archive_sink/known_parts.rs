//! What this process knows of parts that are already in the archive: the event ids in them.
//!
//! Parts never change, so what was read once stays true; the entity tag tells a part from another
//! one that came to its name after somebody removed it. Nothing is read here.

use std::collections::{BTreeMap, VecDeque};

use super::part_content::PartContent;

/// Memory for all parts, in bytes, of the function's 256 MB: some 800,000 events. It has to hold the
/// minutes that are written, or each invocation reads their parts anew: 20 shards at 500 expired items
/// a second write 600,000 in one. Older parts are seldom asked for and can be read again.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// What an event id takes in its set, which has room for more than it holds.
const EVENT_ID_BYTES: usize = 40;
/// What a part takes beside its event ids: its name, twice, its entity tag, its place in both lists.
const PART_BYTES: usize = 600;

/// Event ids by part. The parts that were learned first are forgotten first.
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
    /// The event ids in a part, if they are known.
    pub(super) fn get(&self, name: &str, entity_tag: &str) -> Option<PartContent> {
        let (known_tag, content) = self.parts.get(name)?;
        (known_tag == entity_tag).then(|| content.clone())
    }

    /// Remembers the event ids in a part.
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
        // Parts of one row count too.
        for part in 0..BYTES_MAX / PART_BYTES {
            known.insert(format!("c{part}"), String::new(), ids(1));
        }
        assert!(known.bytes <= BYTES_MAX && known.get("c0", "").is_none());
    }
}
