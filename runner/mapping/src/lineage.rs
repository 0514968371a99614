//! Tracks the shards of the stream and their parents. It decides which shards may be read and which
//! shards can be removed.
//!
//! `shard` handles the records.

use std::collections::{BTreeMap, BTreeSet};

use super::checkpoint::{CheckpointPosition, Checkpoints};
use super::command::{Command, Event, ShardDescription};
use super::context::Context;
use super::id::ShardId;
use super::record::RETENTION_MS;
use super::settings::StartingPosition;
use super::shard::{Phase, Shard};

/// All known shards of the stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Lineage {
    pub(super) shards: BTreeMap<ShardId, Shard>,
    /// The time when the mapping first listed its stream; `None` before this listing.
    created_ms: Option<i64>,
    pub(super) described: bool,
    pub(super) enabled: bool,
    /// True if the start positions of the shards are not durable yet. They must be durable before
    /// the first read. Otherwise, `LATEST` would be a later position after a restart, and the
    /// mapping would miss records.
    pub(super) unsaved: bool,
}

impl Lineage {
    /// Restores the shards from the checkpoints. `None` creates the state of a new mapping.
    pub(super) fn restore(checkpoints: Option<Checkpoints>) -> Self {
        let Some(checkpoints) = checkpoints else { return Self::default() };
        let created_ms = checkpoints.created_ms;
        let shards = checkpoints
            .shards
            .into_iter()
            .map(|(id, checkpoint)| (id.clone(), Shard::restore(id, checkpoint, created_ms)));
        Self {
            shards: shards.collect(),
            created_ms: Some(created_ms),
            described: false,
            enabled: true,
            unsaved: false,
        }
    }

    pub(super) fn checkpoints(&self) -> Option<Checkpoints> {
        let shards = self.shards.iter().map(|(id, shard)| (id.clone(), shard.checkpoint()));
        Some(Checkpoints { created_ms: self.created_ms?, shards: shards.collect() })
    }

    pub(super) fn created_ms(&self) -> i64 {
        self.created_ms.unwrap_or_default()
    }

    /// Applies a complete listing of the shards. `number` is the number of the listing.
    pub(super) fn describe(
        &mut self,
        number: u64,
        enabled: bool,
        listing: Vec<ShardDescription>,
        context: &mut Context<'_>,
    ) {
        let is_new = self.created_ms.is_none();
        if is_new {
            let margin_ms = context.settings.clock_margin_ms;
            self.created_ms = Some(context.now.time_ms.saturating_sub(margin_ms));
            self.unsaved = context.settings.starting_position == StartingPosition::Latest;
        }
        (self.described, self.enabled) = (true, enabled);
        let listed: BTreeSet<ShardId> = listing.iter().map(|shard| shard.id.clone()).collect();
        // A shard that is its own parent has no parent, because it would otherwise wait for itself.
        let parents: BTreeSet<ShardId> = listing
            .iter()
            .filter_map(|shard| shard.parent.clone().filter(|parent| *parent != shard.id))
            .collect();
        for description in listing {
            if !self.shards.contains_key(&description.id) {
                let skipped = is_new && (description.closed || parents.contains(&description.id));
                self.add(description, is_new, skipped, context);
            }
        }
        let time_ms = context.now.time_ms;
        self.shards.retain(|id, shard| match shard.phase {
            // The tombstone of a listed shard is kept. Without it, the shard would count as new and
            // would be read again.
            Phase::Done { at_ms } => listed.contains(id) || time_ms - at_ms < RETENTION_MS,
            _ => true,
        });
        for (id, shard) in &mut self.shards {
            shard.note_listing(listed.contains(id), number, context);
            shard.has_child |= parents.contains(id);
        }
        if is_new {
            context.commands.push(Command::Save);
        }
    }

    /// Adds a new shard. `LATEST` applies only to shards that exist when the mapping is created.
    /// Of these shards, the closed shards are `skipped`.
    fn add(
        &mut self,
        description: ShardDescription,
        is_new: bool,
        skipped: bool,
        context: &mut Context<'_>,
    ) {
        let ShardDescription { id, parent, .. } = description;
        context.report(Event::ShardFound { shard: id.clone() });
        let parent = parent.filter(|parent| *parent != id);
        let start = match context.settings.starting_position {
            StartingPosition::Latest if is_new => StartingPosition::Latest,
            _ => StartingPosition::TrimHorizon,
        };
        let mut shard = Shard::new(id.clone(), parent, start);
        if start == StartingPosition::Latest {
            if skipped {
                shard.phase = Phase::Done { at_ms: context.now.time_ms };
            }
            let position = if skipped {
                CheckpointPosition::Closed { at_ms: context.now.time_ms }
            } else {
                CheckpointPosition::Latest
            };
            context.commands.push(Command::Checkpoint { shard: id.clone(), position });
        }
        self.shards.insert(id, shard);
    }

    /// Starts the shards whose parent is done or unknown. Returns true if at least one shard was
    /// started.
    pub(super) fn start_children(&mut self) -> bool {
        if !self.described || self.unsaved {
            return false;
        }
        let unfinished: BTreeSet<ShardId> = self
            .shards
            .values()
            .filter(|shard| !shard.is_done())
            .map(|shard| shard.id.clone())
            .collect();
        let mut any = false;
        for shard in self.shards.values_mut().filter(|shard| shard.phase == Phase::Waiting) {
            let waits = shard.parent.as_ref().is_some_and(|parent| unfinished.contains(parent));
            if !waits {
                shard.phase = Phase::Reading;
                any = true;
            }
        }
        any
    }

    /// Returns true if a finished shard has no listed child, although it must have a child.
    pub(super) fn lacks_child(&self) -> bool {
        self.enabled && self.shards.values().any(is_childless)
    }

    /// Returns true if the stream is disabled and all known shards are done.
    pub(super) fn is_worked_off(&self) -> bool {
        self.described && !self.enabled && self.is_done()
    }

    /// Returns true if all known shards are done.
    pub(super) fn is_done(&self) -> bool {
        self.shards.values().all(Shard::is_done)
    }
}

/// Returns true if the shard is done and listed, but has no listed child.
pub(super) fn is_childless(shard: &Shard) -> bool {
    shard.is_done() && shard.listed && !shard.has_child
}
