//! The drain proof: of every shard of every source stream, each record that concerns the migration
//! has been applied.
//!
//! What a record says is compared with what stands in its targets; no position of a poller is asked
//! for, so the same proof works on AWS. What was proved once stays so, because targets only learn;
//! therefore a drain that goes on while writers write has little left to read when they stop.
//! Records from before the start do not count: the backfill read what they wrote. A shard that is
//! trimmed while it is read is as one that is no longer listed. What was left alone or has two sources
//! since the last comparison never becomes proved; only another comparison can tell. What was refused
//! or does not come back is judged by how it stands in the end (`refusals`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

use aws_sdk_dynamodb::Client;
use control::Expect;
use futures::{StreamExt, TryStreamExt, stream};
use model::stream_record::lambda_record_from_str;
use model::{Item, KeySchema, PrimaryKey};
use rules::migration::{Migration, Registers, Rewrite, Target};
use rules::{Effect, Folded, Found, Rule, fold};

use self::gap::{gap, has_child};
use self::refusals::{Refusals, Refused, as_told, not_made};
use super::control_table::Control;
use super::failure::{Result, fatal};
use super::shard_end::{CLOCKS_SECONDS, ShardEnd};
use super::{assembly, lost, tables};
use client::shards::{self, Place, Refusal, Start, Stream};
use mapping::Record;

/// Records of a shard that wait for their proof at most; nothing more is read before some have it.
const WAITING_MAX: usize = 20_000;
/// Records that are proved together: some hundred targets, a few requests.
const PROVED_TOGETHER: usize = 200;
/// Documents that are looked at at the same time.
const LOOKS_AT_ONCE: usize = 8;
/// Shards that are read at the same time: writers may wait for the last one, and on AWS a
/// look is pauses for the most part.
const SHARDS_AT_ONCE: usize = 32;

/// Which records count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Those made after this second.
    pub(crate) since: i64,
    /// The second in which the last comparison began: what was refused before it, it has counted.
    /// A stream that is not older does not tell of all that was written since.
    pub(crate) compared: i64,
}

impl Counted {
    /// Those made after `since`, compared from `compared` on.
    pub(crate) fn new(since: i64, compared: i64) -> Self {
        Self { since, compared }
    }
}

/// A proof that goes on.
pub(crate) struct Drain {
    endpoint: String,
    client: Client,
    migration: Migration,
    /// The way back from where it leads, if there is one that is to be kept open.
    inverse: Option<Migration>,
    tables: Vec<String>,
    counted: Counted,
    /// Seconds by which the time of a record may be behind the moment of its write.
    behind: i64,
    shards: BTreeMap<(String, String), Shard>,
    /// Why the streams do not tell of all that was written.
    gap: Option<String>,
}

/// What is known about a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drained {
    pub(crate) shards: usize,
    /// Records that concern the migration.
    pub(crate) records: u64,
    /// Those that were read and are not applied yet, as far as is known.
    pub(crate) waiting: u64,
    /// There may be more to read: too much waited in a shard.
    pub(crate) is_partial: bool,
    /// The last second, since 1970, in which the oldest of them may have been written, and its table.
    pub(crate) oldest: Option<(i64, String)>,
    /// Seconds by which the time of a record may be behind the moment of its write.
    pub(crate) behind: i64,
    /// What is not proved, in words; none if all of it is, but for what is hopeless.
    pub(crate) missing: Option<String>,
    /// What waiting cannot prove, in words, once nothing else is missing.
    pub(crate) hopeless: Option<String>,
}

struct Shard {
    place: Place,
    /// Empty pages since its last record.
    empty: u32,
    records: u64,
    /// Records that say something and are not proved to be applied, in order.
    waiting: VecDeque<Waiting>,
    /// The last look did not come to its end.
    is_partial: bool,
    missing: Option<String>,
    /// What waiting cannot prove.
    hopeless: Option<String>,
    /// Items that the last comparison would not have let pass as they were written since.
    refused: Refusals,
}

/// Why a record is not proved.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lack {
    /// It is not applied yet.
    NotYet(String),
    /// It never will be.
    Never(String),
}

struct Waiting {
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
    /// Begins a proof.
    pub(crate) fn new(
        endpoint: &str,
        client: &Client,
        (migration, inverse): (Migration, Option<Migration>),
        tables: &[&str],
        counted: Counted,
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

    /// The same proof on a store whose record times may be behind the moment of the write by so many
    /// seconds, because it rounds them down.
    pub(crate) fn with_times_behind(self, behind: i64) -> Self {
        Self { behind, ..self }
    }

    /// Reads every shard to its end, and looks which of the records that wait have been applied.
    ///
    /// # Errors
    /// When a stream or a target cannot be read.
    pub(crate) async fn look(&mut self) -> Result<Drained> {
        self.gap = None;
        let end = ShardEnd::of_look(&self.endpoint, &self.client).await;
        self.look_at_shards(end).await?;
        let (shards, behind) = (self.shards.len(), self.behind);
        let mut drained = Drained { shards, behind, ..Drained::default() };
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
            // What waits may yet change that, but not what an item is that nothing can be made of.
            drained.hopeless = self.refused_now().await?;
        } else if drained.hopeless.is_none() {
            drained.hopeless = self.refused().await?;
        }
        if let Some(gap) = &self.gap {
            // Whatever else is to be waited for.
            drained.hopeless = Some(gap.clone());
        }
        Ok(drained)
    }

    /// Looks at the shards of all streams together: on AWS a look at one takes seconds.
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
                state.missing = Some("it has ended, what follows it is not listed yet".into());
            }
            // What is known of the others is kept.
            self.shards.insert(key, state);
            outcome = outcome.and(looked);
        }
        outcome
    }

    /// Says again what records said that wait since `second` or before, as long as the migration is
    /// what is expected. On the way back of a restructure, `there` is the way there. Gives how many
    /// targets had to be written.
    ///
    /// # Errors
    /// When it is not, or a target or the control table cannot be read or written.
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

    /// Reads and proves in turns until the end, or until something has not been applied.
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
                // There is no room to read on, and there will be none.
                shard.missing.clone_from(&shard.hopeless);
                return Ok(());
            }
        }
    }

    /// Reads on; answers whether that was to the end, and not until too many records wait.
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
                // What comes after the place is gone; the rest may be there.
                Err(Refusal::Trimmed) if shard.place.last().is_some() => {
                    shard.place = Place::new(Start::TrimHorizon);
                    continue;
                }
                // As one that is no longer listed.
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
        // What was written before it the comparison has judged. Clocks differ a little, and a time that
        // was rounded down may be of a write after the comparison.
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
            && self.migration.comes_back(inverse, table, new).is_err()
        {
            shard.refused.note_lossy(decoded.record.keys);
        }
        if !effects.is_empty() {
            shard.records += 1;
            shard.waiting.push_back(Waiting { at: record.creation_s, effects });
        }
        Ok(())
    }

    /// Looks at the records that wait, the oldest first; those that are applied wait no longer.
    /// Gives what is missing of the first one that is not. Records are applied in order, so what is
    /// behind it is not looked at yet.
    async fn prove(&self, shard: &mut Shard) -> Result<Option<String>> {
        shard.hopeless = None;
        // Before this place stands only what never is proved.
        let mut begin = 0;
        while begin < shard.waiting.len() {
            let end = shard.waiting.len().min(begin + PROVED_TOGETHER);
            let some = shard.waiting.iter().skip(begin).take(end - begin).enumerate();
            let effects = some.flat_map(|(place, waiting)| {
                waiting.effects.iter().map(move |effect| (place, effect.clone()))
            });
            let lacks = self.lacks(fold(effects)).await?;
            let mut place = 0;
            shard.waiting.retain(|_| {
                place += 1;
                !(begin < place && place <= end) || lacks.contains_key(&(place - 1 - begin))
            });
            begin += lacks.len();
            for (_, lack) in lacks {
                match lack {
                    Lack::NotYet(what) => return Ok(Some(what)),
                    Lack::Never(what) => {
                        shard.hopeless = mem::take(&mut shard.hopeless).or(Some(what));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Of records whose effects were folded: by the place of each that is not applied, why.
    async fn lacks(&self, folded: Folded) -> Result<BTreeMap<usize, Lack>> {
        let mut lacks = BTreeMap::new();
        let mut lack = |records: Vec<usize>, what: &Lack| {
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
            // What cannot be transformed is told of where its record is refused.
            let is_settled = stands(&target).is_none_or(|item| {
                let rewrite = self.migration.rewrite(&target.table, item);
                matches!(rewrite, Ok(Rewrite::Keep) | Err(_))
            });
            if !is_settled {
                let key = self.migration.key_text(&target.table, &target.key);
                lack(
                    joined.records,
                    &Lack::NotYet(format!("a record has not been applied to {key}")),
                );
            }
        }
        let looks = folded.assemblies.into_iter().map(|(document, joined)| async move {
            let (client, migration) = (&self.client, &self.migration);
            let what = assembly::unassembled(client, migration, &document, &joined.value).await?;
            Ok::<_, String>((joined.records, what))
        });
        let looks: Vec<_> = looks.collect();
        let looks: Vec<_> =
            stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).try_collect().await?;
        for (records, what) in looks {
            let Some(what) = what else { continue };
            lack(records, &Lack::NotYet(format!("a document {what}")));
        }
        Ok(lacks)
    }

    /// The first item that the next comparison would not let pass, as far as that does not depend on
    /// what waits: nothing can be made of it as it stands now, or there were too many to know.
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
                .map_err(|error| format!("a record of `{table}`: {error}"))?;
            for (key, now) in tables::get_all(&self.client, table, schema, &keys).await? {
                if let Err(reason) = self.made_of(table, &now) {
                    return Ok(Some(as_told(table, &key.to_item(schema), &not_made(&reason))));
                }
            }
            // Until another version of one is refused.
            if let Some(shard) = self.shards.get_mut(&place) {
                shard.refused.trust();
            }
        }
        Ok(None)
    }

    /// The first item that the next comparison would not let pass, or that left something behind; the
    /// others are forgotten. It is asked when all records are applied.
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

    /// What is made of an item; in place nothing but the item itself.
    fn made_of(&self, table: &str, item: &Item) -> Result<BTreeMap<Target, Item>, String> {
        if self.migration.kind().is_in_place() {
            return self.migration.rewrite(table, item).map(|_| BTreeMap::new());
        }
        self.migration.outputs(table, item)
    }

    /// What an item that was refused left to be done, in words; none if it was made good for.
    async fn left_by(&self, table: &str, refused: &Refused) -> Result<Option<String>> {
        let now = tables::get(&self.client, table, &refused.key).await?;
        let told = |what: &str| Ok(Some(as_told(table, &refused.key, what)));
        let is_document = self.migration.documents_of(table).is_some();
        if let Some(reason) = refused.reason.as_ref().filter(|_| is_document) {
            return told(&format!("says nothing of a document ({reason})"));
        }
        let expected = match now.as_ref().map(|item| self.made_of(table, item)).transpose() {
            Ok(outputs) => outputs.unwrap_or_default(),
            Err(reason) => return told(&not_made(&reason)),
        };
        if let (Some(item), Some(inverse)) = (&now, &self.inverse)
            && let Err(reason) = self.migration.comes_back(inverse, table, item)
        {
            return told(&format!("does not come back as it is ({reason})"));
        }
        if refused.reason.is_none() {
            return Ok(None);
        }
        // What it became before is still there if the record after the refused one did not know it, and
        // what it is to become is not if that one took it for said.
        let standing = self.standing(refused.before.iter().chain(expected.keys())).await?;
        for target in refused.before.iter().chain(expected.keys()) {
            let stands = standing.get(&target.table).and_then(|items| items.get(&target.key));
            let seen = stands.and_then(|item| self.migration.visible(&target.table, item));
            if seen.as_ref() != expected.get(target) {
                return match refused.before.contains(target) {
                    true => told("could not be transformed, and what it was before is still there"),
                    false => told("could not be transformed, and what it is now is not there"),
                };
            }
        }
        Ok(None)
    }

    fn schema(&self, table: &str) -> Result<&KeySchema> {
        self.migration.schema(table).ok_or_else(|| fatal!("`{table}` is not known"))
    }

    /// What stands in targets, by table and key.
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

/// Why a target does not show what is said of it; none if it does, or something later.
fn of_target(
    migration: &Migration,
    target: &Target,
    said: &Registers,
    stands: Option<&Item>,
) -> Option<Lack> {
    let key = || format!("`{}` {}", target.table, migration.key_text(&target.table, &target.key));
    let shown = stands.and_then(|item| migration.visible(&target.table, item));
    let known = match stands.map(Registers::from_item) {
        None => Registers::default(),
        Some(Ok(known)) => known,
        Some(Err(_)) if target.adopts => Registers::default(),
        // An item that stood there before is left alone for good, and says nothing of a deletion.
        Some(Err(_)) => {
            let is_same = said.live().all(|(_, item)| Some(item) == shown.as_ref());
            return (!is_same).then(|| {
                Lack::Never(format!(
                    "an item that this migration did not write stands at {}; delete it and compare again",
                    key()
                ))
            });
        }
    };
    if known.joined(said).is_some() {
        return Some(Lack::NotYet(format!("a record has not reached {}", key())));
    }
    let is_hidden = known.live().any(|(_, item)| Some(item) != shown.as_ref());
    (is_hidden && known.live().count() > 1).then(|| {
        let sources: Vec<&str> = known.live().map(|(source, _)| source).collect();
        Lack::Never(format!("{} have one target, {}", sources.join(" and "), key()))
    })
}

mod gap;
mod refusals;
#[cfg(test)]
mod tests;
