//! What this process knows of parts that are already in the archive: the event ids in them.
//!
//! Parts never change, so what was read once stays true; the entity tag tells a part from another
//! one that came to its name after somebody removed it. Nothing is read here.

use std::collections::{BTreeMap, VecDeque};

use super::part_content::PartContent;

/// Event ids that are kept at most, over all parts: some 3 MB. They are a few minutes of archiving
/// at full speed; older parts are seldom asked for and can be read again.
const EVENT_IDS_MAX: usize = 200_000;

/// Event ids by part. The parts that were learned first are forgotten first.
#[derive(Debug, Default)]
pub(super) struct KnownParts {
    parts: BTreeMap<String, (String, PartContent)>,
    order: VecDeque<String>,
    event_ids: usize,
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
        self.event_ids += content.event_ids.len();
        self.order.push_back(name.clone());
        self.parts.insert(name, (entity_tag, content));
        while self.event_ids > EVENT_IDS_MAX && self.order.len() > 1 {
            let Some(oldest) = self.order.pop_front() else { break };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, name: &str) -> bool {
        let forgotten = self.parts.remove(name);
        self.event_ids -= forgotten.as_ref().map_or(0, |(_, content)| content.event_ids.len());
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
        for part in 0..50 {
            known.insert(format!("b{part}"), String::new(), ids(EVENT_IDS_MAX / 10));
            assert!(known.event_ids <= EVENT_IDS_MAX);
            assert_eq!(known.order.len(), known.parts.len());
        }
        assert!(known.get("a", "2").is_none());
        assert!(known.get("b49", "").is_some() && known.get("b39", "").is_none());
        known.insert("huge".to_owned(), String::new(), ids(EVENT_IDS_MAX + 1));
        assert!(known.get("huge", "").is_some());
    }
}
