//! The control table as the command line sees it: states, tasks, routes, the journal.
//!
//! Every change is guarded by the entry's revision. What moves a migration on (its phase, its route,
//! whether it is active) is written together with a check of its state, in one transaction: two
//! command lines cannot both move it, and one that was slow cannot move what another has moved since.
//! `docs/formats/control.md` draws the entries.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue as Sdk, CancellationReason, ConditionCheck, Put, TransactWriteItem,
};
use rules::migration::Phase;

use super::attempts::{Written, pause};
pub(crate) use super::expect::{Expect, Move};
use super::neighbours;
pub(crate) use super::progress::Progress;
use client::contention::Attempts;
use client::sdk_error::{error_text, is_not_found, is_throttle};

pub(crate) type Entry = HashMap<String, Sdk>;

/// The control table.
#[derive(Clone)]
pub(crate) struct Control {
    pub(crate) client: Client,
    pub(crate) table: String,
}

/// A text of an entry.
pub(crate) fn text<'e>(entry: &'e Entry, name: &str) -> Option<&'e str> {
    entry.get(name).and_then(|value| value.as_s().ok()).map(String::as_str)
}

/// A number of an entry; 0 if it has none.
pub(crate) fn number(entry: &Entry, name: &str) -> u64 {
    entry.get(name).and_then(|value| value.as_n().ok()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// A flag of an entry.
pub(crate) fn flag(entry: &Entry, name: &str) -> bool {
    entry.get(name).and_then(|value| value.as_bool().ok()).copied().unwrap_or(false)
}

pub(crate) fn s(text: &str) -> Sdk {
    Sdk::S(text.to_owned())
}

pub(crate) fn n(number: u64) -> Sdk {
    Sdk::N(number.to_string())
}

/// The phase of a state.
pub(crate) fn phase_of(state: &Entry) -> Phase {
    text(state, "phase").and_then(Phase::from_name).unwrap_or(Phase::None)
}

pub(super) fn failed<E>(doing: &str, error: &SdkError<E>) -> String
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    // The table is made when the first migration begins.
    match is_not_found(error) {
        true => "no migration was begun in this store".to_owned(),
        false => format!("{doing}: {}", error_text(error)),
    }
}

impl Control {
    pub(crate) async fn get(&self, migration: &str, entry: &str) -> Result<Option<Entry>, String> {
        let request = self.client.get_item().table_name(&self.table).consistent_read(true);
        let request = request.key("migration", s(migration)).key("entry", s(entry));
        let answer = request.send().await.map_err(|error| failed("GetItem", &error))?;
        Ok(answer.item)
    }

    /// The entries of a migration whose names begin with `prefix`.
    pub(crate) async fn entries(
        &self,
        migration: &str,
        prefix: &str,
    ) -> Result<Vec<Entry>, String> {
        let (mut entries, mut start) = (Vec::new(), None);
        loop {
            let answer = self
                .client
                .query()
                .table_name(&self.table)
                .consistent_read(true)
                .key_condition_expression("#m = :m AND begins_with(#e, :e)")
                .expression_attribute_names("#m", "migration")
                .expression_attribute_names("#e", "entry")
                .expression_attribute_values(":m", s(migration))
                .expression_attribute_values(":e", s(prefix))
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|error| failed("Query", &error))?;
            entries.extend(answer.items.unwrap_or_default());
            start = answer.last_evaluated_key;
            if start.is_none() {
                return Ok(entries);
            }
        }
    }

    /// The states of all migrations; none while there is no control table, which the first one makes.
    pub(crate) async fn states(&self) -> Result<Vec<Entry>, String> {
        let (mut states, mut start) = (Vec::new(), None);
        loop {
            let answer = self
                .client
                .scan()
                .table_name(&self.table)
                .consistent_read(true)
                .filter_expression("#e = :e")
                .expression_attribute_names("#e", "entry")
                .expression_attribute_values(":e", s("STATE"))
                .set_exclusive_start_key(start)
                .send()
                .await;
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) if is_not_found(&error) => return Ok(states),
                Err(error) => return Err(failed("the control table cannot be read", &error)),
            };
            states.extend(answer.items.unwrap_or_default());
            start = answer.last_evaluated_key;
            if start.is_none() {
                return Ok(states);
            }
        }
    }

    /// Writes an entry if its revision is still the one that it carries, one revision later.
    /// Answers whether it was. Where a transaction writes at the moment, or DynamoDB throttles, it is
    /// tried again.
    pub(crate) async fn replace(&self, mut entry: Entry) -> Result<bool, String> {
        let revision = number(&entry, "revision");
        let what = self.what(&entry);
        entry.insert("revision".to_owned(), n(revision + 1));
        let request = self.client.put_item().table_name(&self.table).set_item(Some(entry));
        let request = request.expression_attribute_names("#r", "revision");
        let request = if revision == 0 {
            request.condition_expression("attribute_not_exists(#r)")
        } else {
            request.condition_expression("#r = :r").expression_attribute_values(":r", n(revision))
        };
        let mut attempts = Attempts::first();
        loop {
            let Err(error) = request.clone().send().await else { return Ok(true) };
            let in_vain = match error.as_service_error().and_then(ProvideErrorMetadata::code) {
                Some("ConditionalCheckFailedException") => return Ok(false),
                Some("TransactionConflictException") => Written::Changed,
                Some(code) if is_throttle(code) => Written::Throttled(failed("PutItem", &error)),
                _ => return Err(failed("PutItem", &error)),
            };
            pause(&mut attempts, in_vain, &what).await?;
        }
    }

    /// An entry, for people.
    fn what(&self, entry: &Entry) -> String {
        let of = |name: &str| text(entry, name).unwrap_or_default();
        format!("`{}` of `{}`", of("entry"), of("migration"))
    }

    /// Changes an entry, again if others change it in between. `change` says `false` when there is
    /// nothing to change.
    pub(crate) async fn change(
        &self,
        migration: &str,
        name: &str,
        mut change: impl FnMut(&mut Entry) -> bool,
    ) -> Result<Entry, String> {
        let mut attempts = Attempts::first();
        loop {
            let mut entry = self.found(migration, name).await?;
            if !change(&mut entry) {
                return Ok(entry);
            }
            if self.replace(entry.clone()).await? {
                return Ok(next(entry));
            }
            pause(&mut attempts, Written::Changed, &self.what(&entry)).await?;
        }
    }

    /// An entry, or an empty one with its key.
    pub(super) async fn found(&self, migration: &str, name: &str) -> Result<Entry, String> {
        Ok(self.get(migration, name).await?.unwrap_or_else(|| {
            HashMap::from([("migration".to_owned(), s(migration)), ("entry".to_owned(), s(name))])
        }))
    }

    /// Changes an entry of a migration as long as its state is what is expected: both are looked at
    /// by one transaction. `place` is the entry's key.
    ///
    /// # Errors
    /// When the state is not what is expected, or the table cannot be read or written.
    async fn change_guarded(
        &self,
        migration: &str,
        expect: Expect<'_>,
        place: (&str, &str),
        mut change: impl FnMut(&mut Entry) -> bool,
    ) -> Result<Entry, String> {
        let mut attempts = Attempts::first();
        loop {
            let state = self.expected(migration, expect).await?;
            let mut entry = self.found(place.0, place.1).await?;
            if !change(&mut entry) {
                return Ok(entry);
            }
            let entry = next(entry);
            let items = vec![self.unmoved(migration, &state)?, self.put_of(&entry)?];
            match self.transact(&self.table, items).await? {
                Written::Done => return Ok(entry),
                in_vain => pause(&mut attempts, in_vain, &self.what(&entry)).await?,
            }
        }
    }

    /// The state of a migration, if it is what is expected.
    async fn expected(&self, migration: &str, expect: Expect<'_>) -> Result<Entry, String> {
        let state = self.found(migration, "STATE").await?;
        expect.broken_by(migration, &state).map_or(Ok(state), Err)
    }

    /// Adds entries that are not there, all of them or none, if the state of a migration is what is
    /// expected.
    ///
    /// # Errors
    /// When the state is not what is expected, or the table cannot be read or written.
    pub(super) async fn add(
        &self,
        migration: &str,
        expect: Expect<'_>,
        entries: &[Entry],
    ) -> Result<Written, String> {
        let state = self.expected(migration, expect).await?;
        let mut items = vec![self.unmoved(migration, &state)?];
        for entry in entries {
            items.push(self.put_of(&next(entry.clone()))?);
        }
        self.transact(&self.table, items).await
    }

    /// The put of an entry whose revision is one later than the one that it replaces.
    fn put_of(&self, entry: &Entry) -> Result<TransactWriteItem, String> {
        let revision = number(entry, "revision").saturating_sub(1);
        let put = Put::builder().table_name(&self.table).set_item(Some(entry.clone()));
        let put = put.expression_attribute_names("#r", "revision");
        let put = if revision == 0 {
            put.condition_expression("attribute_not_exists(#r)")
        } else {
            put.condition_expression("#r = :r").expression_attribute_values(":r", n(revision))
        };
        let put = put.build().map_err(|error| error.to_string())?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// Puts an item of another table if the state of a migration is what is expected, both by one
    /// transaction. Answers whether it was put, and not changed by others.
    ///
    /// # Errors
    /// When the state is not what is expected, or a table cannot be read or written.
    pub(super) async fn put_elsewhere(
        &self,
        migration: &str,
        expect: Expect<'_>,
        put: Put,
    ) -> Result<bool, String> {
        let table = put.table_name().to_owned();
        let put = TransactWriteItem::builder().put(put).build();
        let mut attempts = Attempts::first();
        loop {
            let state = self.expected(migration, expect).await?;
            let items = vec![self.unmoved(migration, &state)?, put.clone()];
            match self.transact(&table, items).await? {
                Written::Done => return Ok(true),
                Written::Changed => return Ok(false),
                throttled => pause(&mut attempts, throttled, &format!("`{table}`")).await?,
            }
        }
    }

    /// The check that a state is still the one that was read.
    fn unmoved(&self, migration: &str, state: &Entry) -> Result<TransactWriteItem, String> {
        let check = ConditionCheck::builder().table_name(&self.table);
        let check = check.key("migration", s(migration)).key("entry", s("STATE"));
        let check = check.expression_attribute_names("#r", "revision");
        let check = match number(state, "revision") {
            0 => check.condition_expression("attribute_not_exists(#r)"),
            revision => {
                let check = check.condition_expression("#r = :r");
                check.expression_attribute_values(":r", n(revision))
            }
        };
        let check = check.build().map_err(|error| error.to_string())?;
        Ok(TransactWriteItem::builder().condition_check(check).build())
    }

    /// Writes all of it or nothing. `table` is named when it cannot be.
    async fn transact(
        &self,
        table: &str,
        items: Vec<TransactWriteItem>,
    ) -> Result<Written, String> {
        let request = self.client.transact_write_items().set_transact_items(Some(items));
        let Err(error) = request.send().await else { return Ok(Written::Done) };
        let Some(service) = error.as_service_error() else {
            return Err(failed("TransactWriteItems", &error));
        };
        if service.is_transaction_in_progress_exception()
            || service.code() == Some("TransactionConflictException")
        {
            return Ok(Written::Changed);
        }
        if service.code().is_some_and(is_throttle) {
            return Ok(Written::Throttled(failed("TransactWriteItems", &error)));
        }
        let reasons = match service {
            TransactWriteItemsError::TransactionCanceledException(canceled) => {
                canceled.cancellation_reasons()
            }
            _ => return Err(failed("TransactWriteItems", &error)),
        };
        let others = ["None", "ConditionalCheckFailed", "TransactionConflict"];
        let mut codes = reasons.iter().filter_map(|reason| Some((reason.code()?, reason)));
        let words = |reason: &CancellationReason| {
            let words = reason.message().or(reason.code()).unwrap_or("it does not say why");
            format!("`{table}` cannot be written: {words}")
        };
        let is_told = |code: &str| others.contains(&code) || is_throttle(code);
        if let Some((_, reason)) = codes.clone().find(|(code, _)| !is_told(code)) {
            return Err(words(reason));
        }
        Ok(match codes.find(|(code, _)| is_throttle(code)) {
            Some((_, reason)) => Written::Throttled(words(reason)),
            None => Written::Changed,
        })
    }

    /// The direction, the fingerprint and the fence with which a migration is active.
    pub(crate) async fn active(
        &self,
        migration: &str,
    ) -> Result<Option<(String, String, i64)>, String> {
        let entry = self.get("*", "ACTIVE").await?.unwrap_or_default();
        let all = entry.get("active").and_then(|value| value.as_m().ok());
        let Some(members) = all.and_then(|all| all.get(migration)).and_then(|m| m.as_m().ok())
        else {
            return Ok(None);
        };
        let of = |name: &str| text(members, name).unwrap_or_default().to_owned();
        let since = i64::try_from(number(members, "since")).unwrap_or(i64::MAX);
        Ok(Some((of("direction"), of("fingerprint"), since)))
    }

    /// Makes a migration active in a direction, or no longer active.
    pub(crate) async fn set_active(
        &self,
        migration: &str,
        expect: Expect<'_>,
        active: Option<(&str, &str, i64)>,
    ) -> Result<(), String> {
        self.change_guarded(migration, expect, ("*", "ACTIVE"), |entry| {
            let known = entry.remove("active");
            let mut all = known.and_then(|value| value.as_m().ok().cloned()).unwrap_or_default();
            let before = all.remove(migration);
            let after = active.map(|(direction, fingerprint, since)| {
                Sdk::M(HashMap::from([
                    ("direction".to_owned(), s(direction)),
                    ("fingerprint".to_owned(), s(fingerprint)),
                    ("since".to_owned(), n(u64::try_from(since).unwrap_or(0))),
                ]))
            });
            let is_so = before == after;
            if let Some(members) = after {
                all.insert(migration.to_owned(), members);
            }
            entry.insert("active".to_owned(), Sdk::M(all));
            !is_so
        })
        .await
        .map(drop)
    }

    /// Moves a migration to a phase and writes that into its journal, which is only added to: both or
    /// nothing. What comes to its end is no longer followed by the same write.
    ///
    /// # Errors
    /// When its state is not what is expected, or the table cannot be read or written.
    pub(crate) async fn to_phase(
        &self,
        migration: &str,
        moved: Move<'_>,
        also: impl FnMut(&mut Entry),
    ) -> Result<Entry, String> {
        let is_end = moved.to.is_some_and(Phase::has_ended);
        let leave = |active: &mut Entry| Ok(neighbours::leave(active, migration));
        self.to_phase_with(migration, moved, also, is_end.then_some(leave)).await
    }

    /// The same, with a change of the entry `ACTIVE` in the same transaction. `active` says whether it
    /// changes it, or why nothing may be moved.
    ///
    /// # Errors
    /// As above, and what `active` says.
    pub(super) async fn to_phase_with(
        &self,
        migration: &str,
        Move { expect, to, why, now }: Move<'_>,
        mut also: impl FnMut(&mut Entry),
        mut active: Option<impl FnMut(&mut Entry) -> Result<bool, String>>,
    ) -> Result<Entry, String> {
        let (mut attempts, mut tried) = (Attempts::first(), None);
        loop {
            let mut state = self.found(migration, "STATE").await?;
            if tried.as_ref() == Some(&state) {
                // A request whose answer was late had written it.
                return Ok(state);
            }
            if let Some(why) = expect.broken_by(migration, &state) {
                return Err(why);
            }
            let from = phase_of(&state);
            let to = to.unwrap_or(from);
            state.insert("phase".to_owned(), s(to.as_str()));
            also(&mut state);
            let state = next(state);
            let by = std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned());
            let journal = HashMap::from([
                ("migration".to_owned(), s(migration)),
                ("entry".to_owned(), s(&format!("JOURNAL#{:010}", number(&state, "revision")))),
                ("from".to_owned(), s(from.as_str())),
                ("to".to_owned(), s(to.as_str())),
                ("why".to_owned(), s(why)),
                ("at".to_owned(), n(u64::try_from(now).unwrap_or(0))),
                ("by".to_owned(), s(&by)),
            ]);
            let journal = Put::builder().table_name(&self.table).set_item(Some(journal)).build();
            let journal = journal.map_err(|error| error.to_string())?;
            let journal = TransactWriteItem::builder().put(journal).build();
            let mut items = vec![self.put_of(&state)?, journal];
            if let Some(active) = &mut active {
                let mut entry = self.found("*", "ACTIVE").await?;
                if active(&mut entry)? {
                    items.push(self.put_of(&next(entry))?);
                }
            }
            match self.transact(&self.table, items).await? {
                Written::Done => return Ok(state),
                in_vain => pause(&mut attempts, in_vain, &self.what(&state)).await?,
            }
            tried = Some(state);
        }
    }

    /// Changes the state of a migration, without its phase, as long as it is what is expected.
    ///
    /// # Errors
    /// When it is not, or the table cannot be read or written.
    pub(crate) async fn change_state(
        &self,
        migration: &str,
        expect: Expect<'_>,
        mut change: impl FnMut(&mut Entry) -> bool,
    ) -> Result<Entry, String> {
        let mut why = None;
        let state = self
            .change(migration, "STATE", |state| {
                why = expect.broken_by(migration, state);
                why.is_none() && change(state)
            })
            .await?;
        why.map_or(Ok(state), Err)
    }

    /// Opens, moves or closes the route of a migration: which side readers and writers use. Each
    /// change has a new epoch.
    pub(crate) async fn route(
        &self,
        migration: &str,
        expect: Expect<'_>,
        read: &str,
        write: &str,
    ) -> Result<u64, String> {
        let route = self
            .change_guarded(migration, expect, (migration, "ROUTE"), |route| {
                let is_so =
                    text(route, "read") == Some(read) && text(route, "write") == Some(write);
                route.insert("read".to_owned(), s(read));
                route.insert("write".to_owned(), s(write));
                !is_so
            })
            .await?;
        // The epoch is the entry's revision: it grows with each change and never goes back.
        Ok(number(&route, "revision"))
    }
}

/// An entry, one revision later.
fn next(mut entry: Entry) -> Entry {
    let revision = number(&entry, "revision") + 1;
    entry.insert("revision".to_owned(), n(revision));
    entry
}
