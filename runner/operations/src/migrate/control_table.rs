//! Reads and writes the control table for the command line.
//!
//! Every change has the condition that the entry's revision is unchanged. A transaction that
//! changes a migration's phase or route, or makes a migration active or inactive, also checks the
//! migration's state. If two commands change the phase concurrently, the transaction of the slower
//! command fails. The crate `control` defines the entries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue as Sdk, CancellationReason, ConditionCheck, Put, TransactWriteItem,
};
use control::{
    Active, Entry, Expect, Followed, JournalLine, Move, PARTITION_KEY, PlanEntry, REVISION,
    Revised, Route, SORT_KEY, Side, State,
};
use rules::migration::Phase;
use rules::migration::plan::Plan;

use crate::migrate::attempts::{WriteResult, pause};
use crate::migrate::failure::{Failure, Result, of_broken, of_request};
use crate::migrate::operator;
use client::contention::Attempts;
use client::sdk_error::{is_not_found, is_throttle};

/// The control table.
#[derive(Clone)]
pub(crate) struct Control {
    pub(crate) client: Client,
    pub(crate) table: String,
    /// Cached partitions, by name. Reads of these partitions send no request.
    known: Arc<BTreeMap<String, Entries>>,
}

/// The entries of a partition, by name.
type Entries = BTreeMap<String, HashMap<String, Sdk>>;

/// The conditions of a phase change, in addition to the phases in which the change is allowed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guard<'g> {
    /// The required holder of the migration's claim, if any.
    pub(crate) holder: Option<&'g str>,
    /// The required number (`run`) of the migration's last run of tasks, if any.
    pub(crate) run: Option<u64>,
}

impl<'g> Guard<'g> {
    /// Returns the condition that `holder` still claims the migration.
    pub(crate) fn held(holder: &'g str) -> Self {
        Self { holder: Some(holder), run: None }
    }

    /// Returns the condition that `run` is still the migration's last run.
    pub(crate) fn of_run(run: u64) -> Self {
        Self { holder: None, run: Some(run) }
    }
}

impl Control {
    /// Returns the control table named `table`.
    pub(crate) fn new(client: Client, table: String) -> Self {
        Self { client, table, known: Arc::default() }
    }

    /// Returns the same table with the current entries of two partitions cached. Reading a
    /// partition takes one request for each megabyte.
    pub(crate) async fn with_partitions(&self, partitions: [&str; 2]) -> Result<Self> {
        let [one, other] = partitions;
        let (of_one, of_other) = tokio::try_join!(self.entries(one, ""), self.entries(other, ""))?;
        let known = [(one.to_owned(), of_one), (other.to_owned(), of_other)].into();
        Ok(Self { known: Arc::new(known), ..self.clone() })
    }

    /// Reads an entry with a strongly consistent read.
    pub(crate) async fn get<E: Entry>(&self, partition: &str, name: &str) -> Result<Option<E>> {
        if let Some(entries) = self.known.get(partition) {
            return entries.get(name).cloned().map(decoded).transpose();
        }
        let request = self.client.get_item().table_name(&self.table).consistent_read(true);
        let request = request.key(PARTITION_KEY, s(partition)).key(SORT_KEY, s(name));
        let answer = request.send().await;
        let answer = answer.map_err(|error| of_request("cannot read the control table", &error))?;
        answer.item.map(decoded).transpose()
    }

    /// Reads the state of a migration; returns the initial state if the migration was not started.
    pub(crate) async fn state(&self, migration: &str) -> Result<State> {
        let state = self.get(migration, State::NAME).await?;
        Ok(state.unwrap_or_else(|| State::new(migration)))
    }

    /// Reads the route of a migration. Returns `None` before the migration starts, and after
    /// another migration has taken over the route.
    pub(crate) async fn route(&self, migration: &str) -> Result<Option<Route>> {
        let route: Option<Route> =
            self.get(&self.route_name(migration).await?, Route::NAME).await?;
        Ok(route.filter(|route| route.is_of(migration)))
    }

    /// Returns the name of a migration's route. Without a plan, the route has the migration's name,
    /// because only a plan can set another name.
    async fn route_name(&self, migration: &str) -> Result<String> {
        let entry: Option<PlanEntry> = self.get(migration, PlanEntry::NAME).await?;
        let plan = entry.and_then(|entry| serde_json::from_str::<Plan>(&entry.plan).ok());
        Ok(plan.map_or_else(|| migration.to_owned(), |plan| plan.route().to_owned()))
    }

    /// Reads the entry that lists the active migrations.
    pub(crate) async fn active(&self) -> Result<Active> {
        Ok(self.get(control::SHARED, Active::NAME).await?.unwrap_or_default())
    }

    /// Reads the entries of a partition whose names have a prefix.
    pub(crate) async fn list<E: Entry>(&self, partition: &str, prefix: &str) -> Result<Vec<E>> {
        if let Some(entries) = self.known.get(partition) {
            let own = entries.range(prefix.to_owned()..);
            let own = own.take_while(|(name, _)| name.starts_with(prefix));
            return own.map(|(_, item)| decoded(item.clone())).collect();
        }
        self.entries(partition, prefix).await?.into_values().map(decoded).collect()
    }

    /// Reads the items of a partition whose names have a prefix.
    async fn entries(&self, partition: &str, prefix: &str) -> Result<Entries> {
        let query = self.client.query().table_name(&self.table).consistent_read(true);
        let query = query.expression_attribute_names("#m", PARTITION_KEY);
        let query = query.expression_attribute_values(":m", s(partition));
        let query = match prefix {
            "" => query.key_condition_expression("#m = :m"),
            prefix => query
                .key_condition_expression("#m = :m AND begins_with(#e, :e)")
                .expression_attribute_names("#e", SORT_KEY)
                .expression_attribute_values(":e", s(prefix)),
        };
        let mut pages = query.into_paginator().items().send();
        let mut entries = Entries::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(|error| of_request("cannot read the control table", &error))?;
            let name = item.get(SORT_KEY).and_then(|name| name.as_s().ok()).cloned();
            entries.insert(name.unwrap_or_default(), item);
        }
        Ok(entries)
    }

    /// Reads the states of all migrations; none if the control table does not exist yet.
    pub(crate) async fn states(&self) -> Result<Vec<State>> {
        let mut pages = self
            .client
            .scan()
            .table_name(&self.table)
            .consistent_read(true)
            .filter_expression("#e = :e")
            .expression_attribute_names("#e", SORT_KEY)
            .expression_attribute_values(":e", s(State::NAME))
            .into_paginator()
            .items()
            .send();
        let mut states = Vec::new();
        while let Some(item) = pages.next().await {
            match item {
                Ok(item) => states.push(decoded(item)?),
                Err(error) if is_not_found(&error) => break,
                Err(error) => {
                    return Err(of_request("cannot read the control table", &error));
                }
            }
        }
        Ok(states)
    }

    /// Writes an entry unconditionally.
    pub(crate) async fn put<E: Entry>(&self, entry: &E) -> Result<()> {
        let request = self.client.put_item().table_name(&self.table);
        let sent = request.set_item(Some(encoded(entry)?)).send().await;
        sent.map(drop).map_err(|error| of_request(&what(entry), &error))
    }

    /// Writes an entry with the next revision, on the condition that the stored revision is
    /// unchanged. Returns true if the entry was written. Retries if the write conflicts with a
    /// transaction or DynamoDB throttles the request.
    pub(crate) async fn replace<E: Revised>(&self, entry: E) -> Result<bool> {
        let (revision, what) = (entry.revision(), what(&entry));
        let request = self.client.put_item().table_name(&self.table);
        let request = request.set_item(Some(encoded(&entry.next())?));
        let request = request.expression_attribute_names("#r", REVISION);
        let request = match revision {
            0 => request.condition_expression("attribute_not_exists(#r)"),
            _ => request
                .condition_expression("#r = :r")
                .expression_attribute_values(":r", n(revision)),
        };
        let mut attempts = Attempts::first();
        loop {
            let Err(error) = request.clone().send().await else { return Ok(true) };
            let in_vain = match error.as_service_error().and_then(ProvideErrorMetadata::code) {
                Some("ConditionalCheckFailedException") => return Ok(false),
                Some("TransactionConflictException") => WriteResult::Changed,
                Some(code) if is_throttle(code) => WriteResult::Throttled(
                    of_request("cannot write the control table", &error).to_string(),
                ),
                _ => return Err(of_request("cannot write the control table", &error)),
            };
            pause(&mut attempts, in_vain, &what).await?;
        }
    }

    /// Applies `change` to an entry, or to `absent` if there is no entry, and writes the result.
    /// Retries if another process changes the entry at the same time. `change` returns true if the
    /// entry has to be written.
    pub(crate) async fn change<E: Revised>(
        &self,
        absent: E,
        mut change: impl FnMut(&mut E) -> bool,
    ) -> Result<E> {
        let mut attempts = Attempts::first();
        loop {
            let mut entry = self.found(&absent).await?;
            if !change(&mut entry) {
                return Ok(entry);
            }
            if self.replace(entry.clone()).await? {
                return Ok(entry.next());
            }
            pause(&mut attempts, WriteResult::Changed, &what(&entry)).await?;
        }
    }

    /// Returns the stored entry with the key of `absent`; `absent` if there is none.
    async fn found<E: Entry>(&self, absent: &E) -> Result<E> {
        let found = self.get(&absent.partition(), &absent.name()).await?;
        Ok(found.unwrap_or_else(|| absent.clone()))
    }

    /// Changes an entry. The same transaction checks the migration's state.
    ///
    /// # Errors
    /// When the state is not the expected one, or the table cannot be read or written.
    async fn change_guarded<E: Revised>(
        &self,
        migration: &str,
        expect: Expect<'_>,
        absent: E,
        mut change: impl FnMut(&mut E) -> bool,
    ) -> Result<E> {
        let mut attempts = Attempts::first();
        loop {
            let state = self.expected(migration, expect).await?;
            let mut entry = self.found(&absent).await?;
            if !change(&mut entry) {
                return Ok(entry);
            }
            let entry = entry.next();
            let items = vec![self.unmoved(&state)?, self.put_of(&entry)?];
            match self.transact(&self.table, items).await? {
                WriteResult::Done => return Ok(entry),
                in_vain => pause(&mut attempts, in_vain, &what(&entry)).await?,
            }
        }
    }

    /// Returns the state of a migration, or an error if it is not the expected one.
    async fn expected(&self, migration: &str, expect: Expect<'_>) -> Result<State> {
        let state = self.state(migration).await?;
        checked(expect, &state)?;
        Ok(state)
    }

    /// Adds new entries, all or none, if the migration's state is the expected one.
    ///
    /// # Errors
    /// When the state is not the expected one, or the table cannot be read or written.
    pub(crate) async fn add<E: Revised>(
        &self,
        migration: &str,
        expect: Expect<'_>,
        entries: Vec<E>,
    ) -> Result<WriteResult> {
        let state = self.expected(migration, expect).await?;
        let mut items = vec![self.unmoved(&state)?];
        for entry in entries {
            items.push(self.put_of(&entry.next())?);
        }
        self.transact(&self.table, items).await
    }

    /// Returns a `Put` of an entry, on the condition that the entry's stored revision is unchanged.
    fn put_of<E: Revised>(&self, entry: &E) -> Result<TransactWriteItem> {
        let revision = entry.revision().saturating_sub(1);
        let put = Put::builder().table_name(&self.table).set_item(Some(encoded(entry)?));
        let put = put.expression_attribute_names("#r", REVISION);
        let put = match revision {
            0 => put.condition_expression("attribute_not_exists(#r)"),
            _ => {
                let put = put.condition_expression("#r = :r");
                put.expression_attribute_values(":r", n(revision))
            }
        };
        let put = put.build().map_err(|error| error.to_string())?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// Puts an item into a table other than the control table. The same transaction checks the
    /// migration's state. Returns false if another writer changed the item.
    ///
    /// # Errors
    /// When the state is not the expected one, or a table cannot be read or written.
    pub(crate) async fn put_elsewhere(
        &self,
        migration: &str,
        expect: Expect<'_>,
        put: Put,
    ) -> Result<bool> {
        let table = put.table_name().to_owned();
        let put = TransactWriteItem::builder().put(put).build();
        let mut attempts = Attempts::first();
        loop {
            let state = self.expected(migration, expect).await?;
            let items = vec![self.unmoved(&state)?, put.clone()];
            match self.transact(&table, items).await? {
                WriteResult::Done => return Ok(true),
                WriteResult::Changed => return Ok(false),
                throttled => pause(&mut attempts, throttled, &format!("`{table}`")).await?,
            }
        }
    }

    /// Returns a `ConditionCheck` that a migration's state is unchanged.
    fn unmoved(&self, state: &State) -> Result<TransactWriteItem> {
        let check = ConditionCheck::builder().table_name(&self.table);
        let check = check.key(PARTITION_KEY, s(&state.partition())).key(SORT_KEY, s(&state.name()));
        let check = check.expression_attribute_names("#r", REVISION);
        let check = match state.revision {
            0 => check.condition_expression("attribute_not_exists(#r)"),
            revision => {
                let check = check.condition_expression("#r = :r");
                check.expression_attribute_values(":r", n(revision))
            }
        };
        let check = check.build().map_err(|error| error.to_string())?;
        Ok(TransactWriteItem::builder().condition_check(check).build())
    }

    /// Writes all items or none, in one transaction. Error messages name `table`.
    async fn transact(&self, table: &str, items: Vec<TransactWriteItem>) -> Result<WriteResult> {
        let request = self.client.transact_write_items().set_transact_items(Some(items));
        let Err(error) = request.send().await else { return Ok(WriteResult::Done) };
        let failed = || of_request("cannot commit a transaction on the control table", &error);
        let Some(service) = error.as_service_error() else { return Err(failed()) };
        if service.is_transaction_in_progress_exception()
            || service.code() == Some("TransactionConflictException")
        {
            return Ok(WriteResult::Changed);
        }
        if service.code().is_some_and(is_throttle) {
            return Ok(WriteResult::Throttled(failed().to_string()));
        }
        let TransactWriteItemsError::TransactionCanceledException(canceled) = service else {
            return Err(failed());
        };
        let others = ["None", "ConditionalCheckFailed", "TransactionConflict"];
        let reasons = canceled.cancellation_reasons().iter();
        let mut codes = reasons.filter_map(|reason| Some((reason.code()?, reason)));
        let words = |reason: &CancellationReason| {
            let words = reason.message().or(reason.code()).unwrap_or("no reason given");
            format!("cannot write table `{table}`: {words}")
        };
        let is_told = |code: &str| others.contains(&code) || is_throttle(code);
        if let Some((_, reason)) = codes.clone().find(|(code, _)| !is_told(code)) {
            return Err(Failure::Fatal(words(reason)));
        }
        Ok(match codes.find(|(code, _)| is_throttle(code)) {
            Some((_, reason)) => WriteResult::Throttled(words(reason)),
            None => WriteResult::Changed,
        })
    }

    /// Makes functions apply the changes of a migration, or with `None`, makes them stop.
    pub(crate) async fn set_active(
        &self,
        migration: &str,
        expect: Expect<'_>,
        followed: Option<Followed>,
    ) -> Result<()> {
        self.change_guarded(migration, expect, Active::default(), |active| {
            let before = match followed.clone() {
                Some(followed) => active.active.insert(migration.to_owned(), followed),
                None => active.active.remove(migration),
            };
            before != followed
        })
        .await
        .map(drop)
    }

    /// Changes the phase of a migration: writes the state and a journal line in one transaction. If
    /// the change ends the migration, the same transaction makes the migration inactive. `now` is
    /// the store's time.
    ///
    /// # Errors
    /// When the state is not the expected one, or the table cannot be read or written.
    pub(crate) async fn make(
        &self,
        migration: &str,
        guard: Guard<'_>,
        it: &Move,
        now: i64,
    ) -> Result<State> {
        let is_end = it.to().is_some_and(Phase::has_ended);
        let leave = |active: &mut Active| Ok(active.remove(migration));
        self.make_with(migration, guard, it, now, is_end.then_some(leave)).await
    }

    /// Changes the phase and the entry of active migrations in one transaction. The function
    /// `active` changes that entry and returns true if it did so. An error of `active` prevents the
    /// phase change.
    ///
    /// # Errors
    /// The errors of [`Control::make`] and of `active`.
    pub(crate) async fn make_with(
        &self,
        migration: &str,
        guard: Guard<'_>,
        it: &Move,
        now: i64,
        mut active: Option<impl FnMut(&mut Active) -> Result<bool>>,
    ) -> Result<State> {
        let (phases, why) = (it.phases(), it.why());
        let expect = Expect { phases: &phases, holder: guard.holder, run: guard.run };
        let (mut attempts, mut tried) = (Attempts::first(), None);
        loop {
            let mut state = self.state(migration).await?;
            if tried.as_ref() == Some(&state) {
                // An earlier attempt has written the state, but its response was lost.
                return Ok(state);
            }
            checked(expect, &state)?;
            let from = state.phase;
            it.apply(&mut state);
            let state = state.next();
            let journal = JournalLine {
                migration: migration.to_owned(),
                line: state.revision,
                from,
                to: state.phase,
                why: why.clone(),
                at: now,
                by: operator::name(),
            };
            let journal = Put::builder().table_name(&self.table).set_item(Some(encoded(&journal)?));
            let journal = journal.build().map_err(|error| error.to_string())?;
            let journal = TransactWriteItem::builder().put(journal).build();
            let mut items = vec![self.put_of(&state)?, journal];
            if let Some(active) = &mut active {
                let mut entry = self.active().await?;
                if active(&mut entry)? {
                    items.push(self.put_of(&entry.next())?);
                }
            }
            match self.transact(&self.table, items).await? {
                WriteResult::Done => return Ok(state),
                in_vain => pause(&mut attempts, in_vain, &what(&state)).await?,
            }
            tried = Some(state);
        }
    }

    /// Changes a migration's state, except its phase, if the state is the expected one.
    ///
    /// # Errors
    /// When the state is not the expected one, or the table cannot be read or written.
    pub(crate) async fn change_state(
        &self,
        migration: &str,
        expect: Expect<'_>,
        mut change: impl FnMut(&mut State) -> bool,
    ) -> Result<State> {
        let mut broken = Ok(());
        let state = self
            .change(State::new(migration), |state| {
                broken = checked(expect, state);
                broken.is_ok() && change(state)
            })
            .await?;
        broken.map(|()| state)
    }

    /// Opens, redirects or closes the route of a migration. Has no effect if another migration has
    /// taken over the route. Returns the route's epoch, which grows with each change.
    pub(crate) async fn set_route(
        &self,
        migration: &str,
        expect: Expect<'_>,
        (read, write): (Side, Side),
    ) -> Result<u64> {
        let absent = Route::new(&self.route_name(migration).await?);
        let route = self.change_guarded(migration, expect, absent, |route| {
            let is_so = route.revision > 0 && (route.read, route.write) == (read, write);
            if is_so || !route.is_of(migration) {
                return false;
            }
            (route.read, route.write) = (read, write);
            route.set_owner(migration);
            true
        });
        Ok(route.await?.revision)
    }

    /// Assigns a route to the migration of a plan and opens the route to the sources, if the stored
    /// route still equals `seen`. Returns true if the route was assigned.
    ///
    /// # Errors
    /// When the state is not the expected one, or the table cannot be read or written.
    pub(crate) async fn take_route(
        &self,
        plan: &Plan,
        expect: Expect<'_>,
        seen: &Route,
    ) -> Result<bool> {
        let (absent, mut is_as_seen) = (Route::new(plan.route()), true);
        self.change_guarded(&plan.migration, expect, absent, |route| {
            is_as_seen = route == seen;
            (route.read, route.write) = (Side::Source, Side::Source);
            route.set_owner(&plan.migration);
            is_as_seen && (route != seen || seen.revision == 0)
        })
        .await?;
        Ok(is_as_seen)
    }
}

/// Checks that `state` meets the expectation `expect`.
///
/// # Errors
/// When it does not. The message describes the difference.
pub(crate) fn checked(expect: Expect<'_>, state: &State) -> Result<()> {
    expect.check(state).map_err(|broken| of_broken(&state.migration, &broken))
}

/// Describes an entry for messages.
fn what(entry: &impl Entry) -> String {
    format!("`{}` of `{}`", entry.name(), entry.partition())
}

fn encoded(entry: &impl Entry) -> Result<HashMap<String, Sdk>> {
    let item = serde_dynamo::to_item(entry);
    let mut item: HashMap<String, Sdk> =
        item.map_err(|error| format!("{}: {error}", what(entry)))?;
    item.insert(PARTITION_KEY.to_owned(), s(&entry.partition()));
    item.insert(SORT_KEY.to_owned(), s(&entry.name()));
    Ok(item)
}

fn decoded<E: Entry>(item: HashMap<String, Sdk>) -> Result<E> {
    let key = |name: &str| {
        let value = item.get(name).and_then(|value| value.as_s().ok());
        value.cloned().unwrap_or_default()
    };
    let what = format!("`{}` of `{}`", key(SORT_KEY), key(PARTITION_KEY));
    serde_dynamo::from_item(item).map_err(|error| {
        Failure::Fatal(format!("cannot decode the entry {what} in the control table: {error}"))
    })
}

fn s(text: &str) -> Sdk {
    Sdk::S(text.to_owned())
}

fn n(number: u64) -> Sdk {
    Sdk::N(number.to_string())
}
