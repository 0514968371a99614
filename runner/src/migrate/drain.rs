//! The drain proof: of every shard of every source stream, each record that concerns the migration
//! has been applied.
//!
//! What a record says is compared with what stands in its targets; no position of a poller is asked
//! for, so the same proof works on AWS. What was proved once stays so, because targets only learn;
//! therefore a drain that goes on while writers write has little left to read when they stop.
//! Records from before the start do not count: the backfill read what they wrote. A shard that is
//! trimmed while it is read is as one that is no longer listed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use aws_sdk_dynamodb::Client;
use futures::{StreamExt, TryStreamExt, stream};
use model::stream_record::lambda_record_from_str;
use model::{Item, PrimaryKey};
use rules::migration::{MARK, Migration, Registers, Rewrite, Target};
use rules::{Effect, Folded, Found, Rule, fold};

use super::{assembly, tables};
use crate::mapping::Record;
use crate::streams::shards::{self, Place, Refusal, Start, Stream};

/// Empty pages in a row after which an open shard counts as read to its end. DynamoDB may answer
/// with an empty page before there is more; when it counts, writers have stopped, so nothing is
/// added.
const EMPTY_PAGES: u32 = 3;
/// Records of a shard that wait for their proof at most; nothing more is read before some have it.
const WAITING_MAX: usize = 20_000;
/// Records that are proved together: some hundred targets, a few requests.
const PROVED_TOGETHER: usize = 200;
/// Documents that are looked at at the same time.
const LOOKS_AT_ONCE: usize = 8;

/// A proof that goes on.
pub(crate) struct Drain {
    endpoint: String,
    client: Client,
    migration: Migration,
    tables: Vec<String>,
    since: i64,
    shards: BTreeMap<(String, String), Shard>,
}

/// What is known about a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drained {
    pub(crate) shards: usize,
    /// Records that concern the migration.
    pub(crate) records: u64,
    /// Those that were read and are not applied yet, as far as is known.
    pub(crate) waiting: u64,
    /// The second, since 1970, of the oldest of them.
    pub(crate) oldest: Option<i64>,
    /// What is not proved, in words; none if all of it is.
    pub(crate) missing: Option<String>,
}

struct Shard {
    place: Place,
    records: u64,
    /// Records that say something and are not proved to be applied, in order.
    waiting: VecDeque<Waiting>,
    missing: Option<String>,
}

struct Waiting {
    at: Option<i64>,
    effects: Vec<Effect>,
}

impl Shard {
    fn new() -> Self {
        let (place, waiting) = (Place::new(Start::TrimHorizon), VecDeque::new());
        Self { place, records: 0, waiting, missing: None }
    }
}

impl Drain {
    /// Begins a proof. `since` is the second after which records count.
    pub(crate) fn new(
        endpoint: &str,
        client: &Client,
        migration: Migration,
        tables: &[&str],
        since: i64,
    ) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            client: client.clone(),
            migration,
            tables: tables.iter().map(|table| (*table).to_owned()).collect(),
            since,
            shards: BTreeMap::new(),
        }
    }

    /// Reads every shard to its end, and looks which of the records that wait have been applied.
    ///
    /// # Errors
    /// When a stream or a target cannot be read.
    pub(crate) async fn look(&mut self) -> Result<Drained, String> {
        for table in self.tables.clone() {
            let stream = shards::stream_of(&self.endpoint, &table).await?;
            for shard in stream.shards.iter().filter_map(|shard| shard.shard_id.clone()) {
                let key = (table.clone(), shard);
                let mut state = self.shards.remove(&key).unwrap_or_else(Shard::new);
                let looked = self.look_at(&stream, &key.1, &mut state).await;
                self.shards.insert(key, state);
                looked?;
            }
        }
        let mut drained = Drained { shards: self.shards.len(), ..Drained::default() };
        for ((table, id), shard) in &self.shards {
            drained.records += shard.records;
            drained.waiting += shard.waiting.len() as u64;
            let oldest = shard.waiting.front().and_then(|waiting| waiting.at);
            drained.oldest = [drained.oldest, oldest].into_iter().flatten().min();
            if let Some(missing) = shard.missing.as_ref().filter(|_| drained.missing.is_none()) {
                drained.missing = Some(format!("shard {id} of `{table}`: {missing}"));
            }
        }
        Ok(drained)
    }

    /// Reads and proves in turns until the end, or until something has not been applied.
    async fn look_at(&self, stream: &Stream, id: &str, shard: &mut Shard) -> Result<(), String> {
        loop {
            let at_end = self.read(stream, id, shard).await?;
            shard.missing = self.prove(shard).await?;
            if at_end || shard.missing.is_some() {
                return Ok(());
            }
        }
    }

    /// Reads on; answers whether that was to the end, and not until too many records wait.
    async fn read(&self, stream: &Stream, id: &str, shard: &mut Shard) -> Result<bool, String> {
        let mut empty = 0;
        while empty < EMPTY_PAGES {
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
                Err(refusal) => return Err(refusal.to_string()),
            };
            empty = if records.is_empty() { empty + 1 } else { 0 };
            for record in records {
                self.take(shard, &record)?;
            }
        }
        Ok(true)
    }

    fn take(&self, shard: &mut Shard, record: &Record) -> Result<(), String> {
        if record.creation_s.is_some_and(|second| second <= self.since) {
            return Ok(());
        }
        let decoded = lambda_record_from_str(record.json()).map_err(|error| error.to_string())?;
        // A refused record is put aside and counted; it says nothing.
        let effects = self.migration.decide(&decoded, &Found::default()).unwrap_or_default();
        if !effects.is_empty() {
            shard.records += 1;
            shard.waiting.push_back(Waiting { at: record.creation_s, effects });
        }
        Ok(())
    }

    /// Looks at the records that wait, the oldest first; those that are applied wait no longer.
    /// Gives what is missing of the first one that is not. Records are applied in order, so what is
    /// behind it is not looked at yet.
    async fn prove(&self, shard: &mut Shard) -> Result<Option<String>, String> {
        while !shard.waiting.is_empty() {
            let some = shard.waiting.len().min(PROVED_TOGETHER);
            let effects =
                shard.waiting.iter().take(some).enumerate().flat_map(|(place, waiting)| {
                    waiting.effects.iter().map(move |effect| (place, effect.clone()))
                });
            let mut missing = self.missing(fold(effects)).await?;
            let mut place = 0;
            shard.waiting.retain(|_| {
                place += 1;
                place > some || missing.contains_key(&(place - 1))
            });
            if let Some((_, first)) = missing.pop_first() {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Of records whose effects were folded: by the place of each that is not applied, why.
    async fn missing(&self, folded: Folded) -> Result<BTreeMap<usize, String>, String> {
        let mut missing = BTreeMap::new();
        let keys = folded.registers.keys().chain(folded.rewrites.keys());
        let standing = self.standing(keys).await?;
        let stands = |target: &Target| standing.get(&target.table)?.get(&target.key);
        for (target, joined) in folded.registers {
            let item = stands(&target);
            let known = item.map(Registers::from_item).and_then(Result::ok);
            // An item that stood there before is noted, and left alone for good.
            let is_left = item.is_some_and(|item| !item.contains_key(MARK)) && !target.adopts;
            if !is_left && known.unwrap_or_default().joined(&joined.value).is_some() {
                let key = self.migration.key_text(&target.table, &target.key);
                let what = format!("a record has not reached `{}` {key}", target.table);
                missing.extend(joined.records.into_iter().map(|place| (place, what.clone())));
            }
        }
        for (target, joined) in folded.rewrites {
            // What cannot be transformed is counted elsewhere, and never will be.
            let is_settled = stands(&target).is_none_or(|item| {
                let rewrite = self.migration.rewrite(&target.table, item);
                matches!(rewrite, Ok(Rewrite::Keep) | Err(_))
            });
            if !is_settled {
                let key = self.migration.key_text(&target.table, &target.key);
                let what = format!("a record has not been applied to {key}");
                missing.extend(joined.records.into_iter().map(|place| (place, what.clone())));
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
            let what = format!("a document {what}");
            missing.extend(records.into_iter().map(|place| (place, what.clone())));
        }
        Ok(missing)
    }

    /// What stands in targets, by table and key.
    async fn standing<'t>(
        &self,
        targets: impl Iterator<Item = &'t Target>,
    ) -> Result<BTreeMap<String, BTreeMap<PrimaryKey, Item>>, String> {
        let mut keys: BTreeMap<&str, BTreeSet<&PrimaryKey>> = BTreeMap::new();
        for target in targets {
            keys.entry(&target.table).or_default().insert(&target.key);
        }
        let mut standing = BTreeMap::new();
        for (table, keys) in keys {
            let schema = self.migration.schema(table);
            let schema = schema.ok_or_else(|| format!("`{table}` is not known"))?;
            let found = tables::get_all(&self.client, table, schema, keys).await?;
            standing.insert(table.to_owned(), found);
        }
        Ok(standing)
    }
}
