//! The drain proof: it proves that every record in every shard of the source streams is applied.
//!
//! The proof compares each record's effect with its targets. It uses no checkpoints of pollers, so
//! it also works on AWS. A record is proved only once, because no target loses an effect. The proof
//! may therefore start while clients still write. When they stop, few records remain to be read.
//!
//! Records from before the start of the migration are ignored, because the backfill has read their
//! writes. A shard that is trimmed during the read is treated like a shard that is no longer
//! listed. The proof never covers items of other writers and collisions since the last comparison;
//! only another comparison can check them. Items that cannot be transformed or converted back are
//! judged by their final state (`refusals`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

use aws_sdk_dynamodb::Client;
use control::Expect;
use futures::{StreamExt, TryStreamExt, stream};
use model::stream_record::lambda_record_from_str;
use model::{Item, KeySchema, PrimaryKey};
use rules::migration::{Effect, Folded, Migration, Registers, Rewrite, Target};
use rules::{Found, Rule, fold};

use crate::migrate::control_table::Control;
use crate::migrate::drain::lost;
use crate::migrate::drain::proof::gap::{gap, has_child};
use crate::migrate::drain::proof::refusals::{Refusals, Refused, as_told, not_made};
use crate::migrate::drain::shard_end::{CLOCKS_SECONDS, ShardEnd};
use crate::migrate::failure::{Failure, Result, fatal};
use crate::migrate::plan::tables;
use crate::migrate::report::documents;
use client::shards::{self, Place, Refusal, Start, Stream};
use mapping::Record;

/// Maximum number of unproved records of a shard in memory. At this number, the read pauses.
const WAITING_MAX: usize = 20_000;
/// Number of records that are proved together. Their targets are read in batches.
const PROVED_TOGETHER: usize = 200;
/// Number of documents that are checked concurrently.
const LOOKS_AT_ONCE: usize = 8;
/// Number of shards that are read concurrently. The number is high, because blocked writers may
/// wait for the last shard, and on AWS a pass consists mostly of pauses.
const SHARDS_AT_ONCE: usize = 32;

/// The time bounds of the records that have to be proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSelection {
    /// Only records of writes after this second must be proved.
    pub(crate) since: i64,
    /// The second in which the last comparison began. The comparison reported refused items from
    /// before this second. A stream that was enabled after this second lacks some writes.
    pub(crate) compared: i64,
}

impl RecordSelection {
    /// Returns the selection with these bounds.
    pub(crate) fn new(since: i64, compared: i64) -> Self {
        Self { since, compared }
    }
}

/// A drain proof that reads the streams in several passes.
pub(crate) struct Drain {
    endpoint: String,
    client: Client,
    migration: Migration,
    /// The inverse migration; `None` if the targets need not be convertible back into source items.
    inverse: Option<Migration>,
    tables: Vec<String>,
    counted: RecordSelection,
    /// Seconds by which the time of a record may be before its write, because of rounding.
    behind: i64,
    shards: BTreeMap<(String, String), Shard>,
    /// The reason why the streams lack some writes; `None` if they have all writes.
    gap: Option<String>,
}

/// The result of a pass over the streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainPass {
    pub(crate) shards: usize,
    /// Number of records that concern the migration.
    pub(crate) records: u64,
    /// Number of records that were read, but are not proved to be applied.
    pub(crate) waiting: u64,
    /// True if the shards may have more records, because the read paused at `WAITING_MAX`.
    pub(crate) is_partial: bool,
    /// The latest possible second (since 1970) of the oldest waiting write, and its table.
    pub(crate) oldest: Option<(i64, String)>,
    /// Seconds by which the time of a record may be before its write.
    pub(crate) behind: i64,
    /// The reason why some record is not proved yet; `None` if no record waits to be proved.
    pub(crate) missing: Option<String>,
    /// A problem that waiting cannot solve, for example an item that cannot be transformed.
    pub(crate) hopeless: Option<String>,
}

struct Shard {
    place: Place,
    /// Number of empty pages since the shard's last record.
    empty: u32,
    records: u64,
    /// Records that are not proved to be applied, in order.
    waiting: VecDeque<WaitingRecord>,
    /// True if the last pass stopped before it reached the end of the shard.
    is_partial: bool,
    missing: Option<String>,
    /// A problem that waiting cannot solve.
    hopeless: Option<String>,
    /// Items that were written since the last comparison and that a new comparison would refuse.
    refused: Refusals,
}

/// The reason why a record is not proved.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UnprovedReason {
    /// The record is not applied yet. The value is the reason.
    NotYet(String),
    /// The record will never be applied. The value is the reason.
    Never(String),
}

struct WaitingRecord {
    at: Option<i64>,
    effects: Vec<Effect>,
}

impl Shard {
    fn new() -> Self {
        let (place, waiting) = (Place::new(Start::TrimHorizon), VecDeque::new());
        let (missing, hopeless, refused) = (None, None, Refusals::default());
        Self { place, empty: 0, records: 0, waiting, is_partial: true, missing, hopeless, refused }
    }
}

impl Drain {
    /// Returns a proof that has not read the streams yet.
    pub(crate) fn new(
        endpoint: &str,
        client: &Client,
        (migration, inverse): (Migration, Option<Migration>),
        tables: &[&str],
        counted: RecordSelection,
    ) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            client: client.clone(),
            migration,
            inverse,
            tables: tables.iter().map(|table| (*table).to_owned()).collect(),
            counted,
            behind: 0,
            shards: BTreeMap::new(),
            gap: None,
        }
    }

    /// Sets the seconds by which a record's time may be before its write, because of rounding.
    pub(crate) fn with_times_behind(self, behind: i64) -> Self {
        Self { behind, ..self }
    }

    /// Reads the remaining records of every shard, and checks which waiting records are applied.
    ///
    /// # Errors
    /// When a stream or a target cannot be read.
    pub(crate) async fn look(&mut self) -> Result<DrainPass> {
        self.gap = None;
        let end = ShardEnd::of_look(&self.endpoint, &self.client).await;
        self.look_at_shards(end).await?;
        let (shards, behind) = (self.shards.len(), self.behind);
        let mut drained = DrainPass { shards, behind, ..DrainPass::default() };
        for ((table, id), shard) in &self.shards {
            drained.records += shard.records;
            drained.waiting += shard.waiting.len() as u64;
            drained.is_partial |= shard.is_partial;
            let oldest = shard.waiting.front().and_then(|waiting| waiting.at);
            let oldest = oldest.map(|second| (second.saturating_add(behind), table.clone()));
            drained.oldest = [drained.oldest, oldest].into_iter().flatten().min();
            let told = |what: &Option<String>| {
                what.as_ref().map(|what| format!("shard {id} of `{table}`: {what}"))
            };
            drained.missing = drained.missing.or_else(|| told(&shard.missing));
            drained.hopeless = drained.hopeless.or_else(|| told(&shard.hopeless));
        }
        if drained.missing.is_some() {
            // Only items whose current version cannot be transformed are reported here, because
            // waiting records may correct the other refused items.
            drained.hopeless = self.refused_now().await?;
        } else if drained.hopeless.is_none() {
            drained.hopeless = self.refused().await?;
        }
        if let Some(gap) = &self.gap {
            // A gap takes precedence over other problems, because waiting cannot close a gap.
            drained.hopeless = Some(gap.clone());
        }
        Ok(drained)
    }

    /// Reads all shards concurrently, because on AWS a pass over one shard takes seconds.
    async fn look_at_shards(&mut self, end: ShardEnd) -> Result<()> {
        let (mut streams, mut known) = (Vec::new(), Vec::new());
        for table in &self.tables {
            streams.push(shards::stream_of(&self.endpoint, table).await?);
        }
        for of_table in &streams {
            self.gap = self.gap.take().or_else(|| gap(of_table, self.counted));
            for id in of_table.shards.iter().filter_map(|shard| shard.shard_id.clone()) {
                let key = (of_table.table.clone(), id);
                let state = self.shards.remove(&key).unwrap_or_else(Shard::new);
                known.push((of_table, key, state));
            }
        }
        let looks = known.into_iter().map(|(of_table, key, mut state)| {
            let drain = &*self;
            async move {
                let looked = drain.look_at(of_table, &key.1, &mut state, end).await;
                (of_table, key, state, looked)
            }
        });
        let looks: Vec<_> = looks.collect();
        let looks: Vec<_> = stream::iter(looks).buffer_unordered(SHARDS_AT_ONCE).collect().await;
        let mut outcome = Ok(());
        for (of_table, key, mut state, looked) in looks {
            if state.missing.is_none() && state.place.is_over() && !has_child(of_table, &key.1) {
                state.missing =
                    Some("the child shards of a closed shard are not listed yet".into());
            }
            // If the read of one shard fails, the results of the other shards remain valid.
            self.shards.insert(key, state);
            outcome = outcome.and(looked);
        }
        outcome
    }

    /// Replays waiting records whose time is `second` or earlier, if the migration's state is the
    /// expected one. In the reverse direction of a restructuring migration, `there` is the forward
    /// migration. Returns the number of targets that had to be written.
    ///
    /// # Errors
    /// When the state is not the expected one, or a table cannot be read or written.
    pub(crate) async fn say_again(
        &self,
        control: &Control,
        expect: Expect<'_>,
        there: Option<&Migration>,
        second: i64,
    ) -> Result<u64> {
        let old = self.shards.values().flat_map(|shard| &shard.waiting);
        let old = old.filter(|waiting| waiting.at.is_none_or(|at| at <= second));
        let effects = old.flat_map(|waiting| waiting.effects.iter().cloned());
        let mut written = 0;
        for (target, said) in fold(effects.map(|effect| (0, effect))).registers {
            let said = (&target, &said.value);
            written +=
                u64::from(lost::say_again(control, expect, (&self.migration, there), said).await?);
        }
        Ok(written)
    }

    /// Reads and proves records of a shard alternately, until its end or an unapplied record.
    async fn look_at(
        &self,
        stream: &Stream,
        id: &str,
        shard: &mut Shard,
        end: ShardEnd,
    ) -> Result<()> {
        loop {
            let at_end = self.read(stream, id, shard, end).await?;
            shard.is_partial = !at_end;
            shard.missing = self.prove(shard).await?;
            if at_end || shard.missing.is_some() {
                return Ok(());
            }
            if shard.waiting.len() >= WAITING_MAX {
                // The queue is full of records that can never be proved, so the read must stop.
                shard.missing.clone_from(&shard.hopeless);
                return Ok(());
            }
        }
    }

    /// Reads the next records of a shard. Returns true at its end, false if too many records wait.
    async fn read(
        &self,
        stream: &Stream,
        id: &str,
        shard: &mut Shard,
        end: ShardEnd,
    ) -> Result<bool> {
        let mut empty = 0;
        while !end.is_reached(empty, shard.empty) {
            if shard.waiting.len() >= WAITING_MAX {
                return Ok(false);
            }
            let records = match stream.next_page(id, &mut shard.place).await {
                Ok(Some(records)) => records,
                Ok(None) => return Ok(true),
                // The next records are trimmed, but the shard may have later records.
                Err(Refusal::Trimmed) if shard.place.last().is_some() => {
                    shard.place = Place::new(Start::TrimHorizon);
                    continue;
                }
                // Like a shard that is no longer listed, this shard has no record to prove.
                Err(Refusal::Trimmed) => return Ok(true),
                Err(refusal) => return Err(refusal.to_string().into()),
            };
            let is_empty = records.is_empty();
            empty = if is_empty { empty + 1 } else { 0 };
            shard.empty = if is_empty { shard.empty.saturating_add(1) } else { 0 };
            for record in &records {
                self.take(&stream.table, shard, record)?;
            }
            if end.is_passed_by(records.last().and_then(|record| record.creation_s)) {
                return Ok(true);
            }
            if let Some(pause) = end.pause(empty, shard.empty) {
                tokio::time::sleep(pause).await;
            }
        }
        Ok(true)
    }

    fn take(&self, table: &str, shard: &mut Shard, record: &Record) -> Result<()> {
        let is_since = |second: i64| record.creation_s.is_none_or(|made| made > second);
        if !is_since(self.counted.since) {
            return Ok(());
        }
        let decoded = lambda_record_from_str(record.json()).map_err(|error| error.to_string())?;
        // The comparison has checked earlier writes. A record that seems slightly older than the
        // comparison may still be newer, because clocks differ and times are rounded.
        let unsure = CLOCKS_SECONDS.saturating_add(self.behind);
        let is_judged = !is_since(self.counted.compared.saturating_sub(unsure));
        let effects = match self.migration.decide(&decoded, &Found::default()) {
            Ok(effects) => effects,
            Err(refusal) => {
                if !is_judged {
                    let (key, old) = (decoded.record.keys, decoded.record.old_image);
                    let before = old.and_then(|old| self.made_of(table, &old).ok());
                    let before = before.unwrap_or_default().into_keys();
                    shard.refused.refuse(key, before, refusal.0);
                }
                return Ok(());
            }
        };
        if !is_judged
            && let (Some(inverse), Some(new)) = (&self.inverse, &decoded.record.new_image)
            && self.migration.check_inverse(inverse, table, new).is_err()
        {
            shard.refused.note_lossy(decoded.record.keys);
        }
        if !effects.is_empty() {
            shard.records += 1;
            shard.waiting.push_back(WaitingRecord { at: record.creation_s, effects });
        }
        Ok(())
    }

    /// Checks waiting records, oldest first, and removes those that are applied. Returns why the
    /// first unapplied record is not applied; `None` if there is no such record. Later records are
    /// not checked yet, because records are applied in order.
    async fn prove(&self, shard: &mut Shard) -> Result<Option<String>> {
        shard.hopeless = None;
        // The records before this position can never be proved.
        let mut begin = 0;
        while begin < shard.waiting.len() {
            let end = shard.waiting.len().min(begin + PROVED_TOGETHER);
            let some = shard.waiting.iter().skip(begin).take(end - begin).enumerate();
            let effects = some.flat_map(|(place, waiting)| {
                waiting.effects.iter().map(move |effect| (place, effect.clone()))
            });
            let lacks = self.unproved(fold(effects)).await?;
            let mut place = 0;
            shard.waiting.retain(|_| {
                place += 1;
                !(begin < place && place <= end) || lacks.contains_key(&(place - 1 - begin))
            });
            begin += lacks.len();
            for (_, lack) in lacks {
                match lack {
                    UnprovedReason::NotYet(what) => return Ok(Some(what)),
                    UnprovedReason::Never(what) => {
                        shard.hopeless = mem::take(&mut shard.hopeless).or(Some(what));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns why records are not applied, by queue position; `folded` has their merged effects.
    async fn unproved(&self, folded: Folded) -> Result<BTreeMap<usize, UnprovedReason>> {
        let mut lacks = BTreeMap::new();
        let mut lack = |records: Vec<usize>, what: &UnprovedReason| {
            lacks.extend(records.into_iter().map(|place| (place, what.clone())));
        };
        let keys = folded.registers.keys().chain(folded.rewrites.keys());
        let standing = self.standing(keys).await?;
        let stands = |target: &Target| standing.get(&target.table)?.get(&target.key);
        for (target, joined) in folded.registers {
            let found = of_target(&self.migration, &target, &joined.value, stands(&target));
            if let Some(what) = found {
                lack(joined.records, &what);
            }
        }
        for (target, joined) in folded.rewrites {
            // An item that cannot be transformed is reported with its own record.
            let is_settled = stands(&target).is_none_or(|item| {
                let rewrite = self.migration.rewrite(&target.table, item);
                matches!(rewrite, Ok(Rewrite::Keep) | Err(_))
            });
            if !is_settled {
                let key = self.migration.key_text(&target.table, &target.key);
                lack(
                    joined.records,
                    &UnprovedReason::NotYet(format!("a record has not been applied to {key}")),
                );
            }
        }
        let looks = folded.assemblies.into_iter().map(|(document, joined)| async move {
            let (client, migration) = (&self.client, &self.migration);
            let what = documents::unassembled(client, migration, &document, &joined.value).await?;
            Ok::<_, Failure>((joined.records, what))
        });
        let looks: Vec<_> = looks.collect();
        let looks: Vec<_> =
            stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).try_collect().await?;
        for (records, what) in looks {
            let Some(what) = what else { continue };
            lack(records, &UnprovedReason::NotYet(format!("a document {what}")));
        }
        Ok(lacks)
    }

    /// Returns a message about the first item whose current version cannot be transformed, or about
    /// too many such items. Unlike `refused`, this function may be called while records wait.
    async fn refused_now(&mut self) -> Result<Option<String>> {
        for place in self.shards.keys().cloned().collect::<Vec<_>>() {
            let (Some(shard), table) = (self.shards.get(&place), &place.0) else { continue };
            if let Some(told) = shard.refused.too_many(table) {
                return Ok(Some(told));
            }
            let schema = self.schema(table)?;
            let keys = shard.refused.in_doubt().map(|refused| schema.key_of_item(&refused.key));
            let keys: BTreeSet<PrimaryKey> = keys
                .collect::<Result<_, _>>()
                .map_err(|error| format!("a record of `{table}` has an invalid key: {error}"))?;
            for (key, now) in tables::get_all(&self.client, table, schema, &keys).await? {
                if let Err(reason) = self.made_of(table, &now) {
                    return Ok(Some(as_told(table, &key.to_item(schema), &not_made(&reason))));
                }
            }
            // These items are read again once a new version of one cannot be transformed.
            if let Some(shard) = self.shards.get_mut(&place) {
                shard.refused.trust();
            }
        }
        Ok(None)
    }

    /// Returns a message about the first item that the next comparison would refuse, or whose
    /// earlier targets are wrong. Removes correct items from the refused items. All records must be
    /// applied before the call.
    async fn refused(&mut self) -> Result<Option<String>> {
        let mut first = None;
        for key in self.shards.keys().cloned().collect::<Vec<_>>() {
            let Some(shard) = self.shards.get(&key) else { continue };
            first = first.or_else(|| shard.refused.too_many(&key.0));
            for refused in shard.refused.all() {
                if first.is_some() {
                    return Ok(first);
                }
                first = self.left_by(&key.0, &refused).await?;
                if first.is_none()
                    && let Some(shard) = self.shards.get_mut(&key)
                {
                    shard.refused.forget(&refused);
                }
            }
        }
        Ok(first)
    }

    /// Returns the targets of an item; empty for an in-place change.
    fn made_of(&self, table: &str, item: &Item) -> Result<BTreeMap<Target, Item>> {
        if self.migration.kind().is_in_place() {
            self.migration.rewrite(table, item).map_err(Failure::fatal)?;
            return Ok(BTreeMap::new());
        }
        self.migration.outputs(table, item).map_err(Failure::fatal)
    }

    /// Returns a message about a refused item; `None` if a later version corrected the item.
    async fn left_by(&self, table: &str, refused: &Refused) -> Result<Option<String>> {
        let now = tables::get(&self.client, table, &refused.key).await?;
        let told = |what: &str| Ok(Some(as_told(table, &refused.key, what)));
        let is_document = self.migration.documents_of(table).is_some();
        if let Some(reason) = refused.reason.as_ref().filter(|_| is_document) {
            return told(&format!("does not belong to a document ({reason})"));
        }
        let expected = match now.as_ref().map(|item| self.made_of(table, item)).transpose() {
            Ok(outputs) => outputs.unwrap_or_default(),
            Err(reason) => return told(&not_made(&reason)),
        };
        if let (Some(item), Some(inverse)) = (&now, &self.inverse)
            && let Err(reason) = self.migration.check_inverse(inverse, table, item)
        {
            return told(&format!("does not convert back to the same item ({reason})"));
        }
        if refused.reason.is_none() {
            return Ok(None);
        }
        // The record after the refused version may cause two faults: a target of an earlier version
        // remains if the record did not name it; a target of the current version is missing if the
        // record assumed that the target existed.
        let standing = self.standing(refused.before.iter().chain(expected.keys())).await?;
        for target in refused.before.iter().chain(expected.keys()) {
            let stands = standing.get(&target.table).and_then(|items| items.get(&target.key));
            let seen = stands.and_then(|item| self.migration.visible(&target.table, item));
            if seen.as_ref() != expected.get(target) {
                return match refused.before.contains(target) {
                    true => told(
                        "could not be transformed, and a target of an earlier version still exists",
                    ),
                    false => told(
                        "could not be transformed, and a target of its current version is missing",
                    ),
                };
            }
        }
        Ok(None)
    }

    fn schema(&self, table: &str) -> Result<&KeySchema> {
        self.migration.schema(table).ok_or_else(|| fatal!("the plan has no table `{table}`"))
    }

    /// Reads the current items of targets.
    async fn standing<'t>(
        &self,
        targets: impl Iterator<Item = &'t Target>,
    ) -> Result<BTreeMap<String, BTreeMap<PrimaryKey, Item>>> {
        let mut keys: BTreeMap<&str, BTreeSet<&PrimaryKey>> = BTreeMap::new();
        for target in targets {
            keys.entry(&target.table).or_default().insert(&target.key);
        }
        let mut standing = BTreeMap::new();
        for (table, keys) in keys {
            let found = tables::get_all(&self.client, table, self.schema(table)?, keys).await?;
            standing.insert(table.to_owned(), found);
        }
        Ok(standing)
    }
}

/// Returns why a target lacks an effect; `None` if the target contains the effect or a later
/// effect.
fn of_target(
    migration: &Migration,
    target: &Target,
    said: &Registers,
    stands: Option<&Item>,
) -> Option<UnprovedReason> {
    let key = || format!("`{}` {}", target.table, migration.key_text(&target.table, &target.key));
    let shown = stands.and_then(|item| migration.visible(&target.table, item));
    let known = match stands.map(Registers::from_item) {
        None => Registers::default(),
        Some(Ok(known)) => known,
        Some(Err(_)) if target.adopts => Registers::default(),
        // The migration never changes an item of another writer. So an existing item of another
        // writer does not show whether a deletion was applied.
        Some(Err(_)) => {
            let is_same = said.live().all(|(_, item)| Some(item) == shown.as_ref());
            return (!is_same).then(|| {
                UnprovedReason::Never(format!(
                    "{} has an item that this migration did not write; delete it and compare again",
                    key()
                ))
            });
        }
    };
    if known.joined(said).is_some() {
        return Some(UnprovedReason::NotYet(format!("a record has not been applied to {}", key())));
    }
    let is_hidden = known.live().any(|(_, item)| Some(item) != shown.as_ref());
    (is_hidden && known.live().count() > 1).then(|| {
        let sources: Vec<&str> = known.live().map(|(source, _)| source).collect();
        UnprovedReason::Never(format!(
            "the source items {} have the same target {}",
            sources.join(" and "),
            key()
        ))
    })
}

mod gap;
mod refusals;
#[cfg(test)]
mod tests;
