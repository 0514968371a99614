//! The shards of a stream with their records. They close and continue in children. Random numbers from a seed
//! decide when.
//!
//! The tests of many seeds share this module.

use std::collections::BTreeMap;

use serde_json::Value;

use mapping::{Record, SequenceNumber, ShardId, mix};

/// SplitMix64: the random numbers of one seed.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % bound
    }

    pub(super) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }
}

/// The shards of a stream with all records that they will ever contain.
#[derive(Default)]
pub(super) struct Shards(pub(super) BTreeMap<ShardId, ShardHistory>);

#[derive(Default)]
pub(super) struct ShardHistory {
    pub(super) parent: Option<ShardId>,
    pub(super) records: Vec<Record>,
    /// The position of the iterator.
    pub(super) iterator: usize,
}

impl Shards {
    /// Begins with one shard for the given number of keys.
    pub(super) fn begin(&mut self, keys: usize) -> Vec<ShardId> {
        let first = ShardId::new("s00");
        self.0.insert(first.clone(), ShardHistory::default());
        vec![first; keys]
    }

    /// Adds the change with this number to a shard.
    pub(super) fn push(&mut self, shard: &ShardId, number: u64, event: &Value) {
        let sequence = SequenceNumber::parse(&format!("{:021}", number + 7)).unwrap();
        let creation_s = Some(1_795_228_140 + i64::try_from(number).unwrap());
        let shard = self.0.get_mut(shard).unwrap();
        shard.records.push(Record::of_event(sequence, creation_s, event));
    }

    /// Closes a shard in some cases.
    pub(super) fn perhaps_split(&mut self, draws: &mut Draws, shard_of: &mut [ShardId]) {
        if draws.below(25) == 0 && self.0.len() < 10 {
            self.split(draws, shard_of);
        }
    }

    /// Closes a shard. Its keys continue in one or two children.
    fn split(&mut self, draws: &mut Draws, shard_of: &mut [ShardId]) {
        let parent = shard_of[draws.index(shard_of.len())].clone();
        let next = self.0.len();
        let children: Vec<_> =
            (0..=draws.index(2)).map(|n| ShardId::new(&format!("s{:02}", next + n))).collect();
        for child in &children {
            let shard = ShardHistory { parent: Some(parent.clone()), ..ShardHistory::default() };
            self.0.insert(child.clone(), shard);
        }
        for (key, shard) in shard_of.iter_mut().enumerate().filter(|(_, shard)| **shard == parent) {
            *shard = children[key % children.len()].clone();
        }
    }
}
