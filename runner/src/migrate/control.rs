//! The control table as the command line sees it: states, tasks, routes, the journal.
//!
//! Every change is guarded by the entry's revision, so two command lines cannot both move a
//! migration. `docs/formats/control.md` draws the entries.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue as Sdk, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, StreamSpecification, StreamViewType,
};
use serde_json::{Value, json};

/// Attempts to make a change while others change the same entry.
const ATTEMPTS_MAX: u32 = 20;

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

fn failed<E: std::error::Error>(doing: &str, error: &E) -> String {
    format!("{doing}: {}", DisplayErrorContext(error))
}

impl Control {
    /// Makes the table if it is not there.
    pub(crate) async fn ensure(&self) -> Result<(), String> {
        if self.client.describe_table().table_name(&self.table).send().await.is_ok() {
            return Ok(());
        }
        let attribute = |name: &str| {
            AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S)
                .build()
                .map_err(|error| error.to_string())
        };
        let key = |name: &str, kind| {
            KeySchemaElement::builder()
                .attribute_name(name)
                .key_type(kind)
                .build()
                .map_err(|error| error.to_string())
        };
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::NewAndOldImages)
            .build()
            .map_err(|error| error.to_string())?;
        let created = self
            .client
            .create_table()
            .table_name(&self.table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute("migration")?)
            .attribute_definitions(attribute("entry")?)
            .key_schema(key("migration", KeyType::Hash)?)
            .key_schema(key("entry", KeyType::Range)?)
            .stream_specification(stream)
            .send()
            .await;
        created.map(drop).map_err(|error| failed("the control table cannot be made", &error))
    }

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

    /// The states of all migrations.
    pub(crate) async fn states(&self) -> Result<Vec<Entry>, String> {
        let (mut states, mut start) = (Vec::new(), None);
        loop {
            let answer = self
                .client
                .scan()
                .table_name(&self.table)
                .filter_expression("#e = :e")
                .expression_attribute_names("#e", "entry")
                .expression_attribute_values(":e", s("STATE"))
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|error| failed("the control table cannot be read", &error))?;
            states.extend(answer.items.unwrap_or_default());
            start = answer.last_evaluated_key;
            if start.is_none() {
                return Ok(states);
            }
        }
    }

    /// Writes an entry if its revision is still the one that it carries, one revision later.
    /// Answers whether it was.
    pub(crate) async fn replace(&self, mut entry: Entry) -> Result<bool, String> {
        let revision = number(&entry, "revision");
        entry.insert("revision".to_owned(), n(revision + 1));
        let request = self.client.put_item().table_name(&self.table).set_item(Some(entry));
        let request = request.expression_attribute_names("#r", "revision");
        let request = if revision == 0 {
            request.condition_expression("attribute_not_exists(#r)")
        } else {
            request.condition_expression("#r = :r").expression_attribute_values(":r", n(revision))
        };
        match request.send().await {
            Ok(_) => Ok(true),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Ok(false)
            }
            Err(error) => Err(failed("PutItem", &error)),
        }
    }

    /// Changes an entry, again if others change it in between. `change` says `false` when there is
    /// nothing to change.
    pub(crate) async fn change(
        &self,
        migration: &str,
        name: &str,
        mut change: impl FnMut(&mut Entry) -> bool,
    ) -> Result<Entry, String> {
        for _ in 0..ATTEMPTS_MAX {
            let mut entry = self.get(migration, name).await?.unwrap_or_else(|| {
                HashMap::from([
                    ("migration".to_owned(), s(migration)),
                    ("entry".to_owned(), s(name)),
                ])
            });
            if !change(&mut entry) {
                return Ok(entry);
            }
            if self.replace(entry.clone()).await? {
                let revision = number(&entry, "revision") + 1;
                entry.insert("revision".to_owned(), n(revision));
                return Ok(entry);
            }
        }
        Err(format!("others change `{name}` of `{migration}` all the time; try again"))
    }

    /// Makes a migration active in a direction, or no longer active.
    pub(crate) async fn set_active(
        &self,
        migration: &str,
        active: Option<(&str, &str, i64)>,
    ) -> Result<(), String> {
        self.change("*", "ACTIVE", |entry| {
            let known = entry.remove("active");
            let mut all = known.and_then(|value| value.as_m().ok().cloned()).unwrap_or_default();
            match active {
                Some((direction, fingerprint, since)) => {
                    let members = HashMap::from([
                        ("direction".to_owned(), s(direction)),
                        ("fingerprint".to_owned(), s(fingerprint)),
                        ("since".to_owned(), n(u64::try_from(since).unwrap_or(0))),
                    ]);
                    all.insert(migration.to_owned(), Sdk::M(members));
                }
                None => {
                    all.remove(migration);
                }
            }
            entry.insert("active".to_owned(), Sdk::M(all));
            true
        })
        .await
        .map(drop)
    }

    /// Moves a migration to a phase and writes that into its journal, which is only added to. The
    /// entry's name makes writing it twice harmless.
    pub(crate) async fn to_phase(
        &self,
        migration: &str,
        phase: &str,
        why: &str,
        now: i64,
        mut also: impl FnMut(&mut Entry),
    ) -> Result<Entry, String> {
        let mut from = String::new();
        let state = self
            .change(migration, "STATE", |state| {
                from = text(state, "phase").unwrap_or("none").to_owned();
                state.insert("phase".to_owned(), s(phase));
                also(state);
                true
            })
            .await?;
        let revision = number(&state, "revision");
        let entry = HashMap::from([
            ("migration".to_owned(), s(migration)),
            ("entry".to_owned(), s(&format!("JOURNAL#{revision:010}"))),
            ("from".to_owned(), s(&from)),
            ("to".to_owned(), s(phase)),
            ("why".to_owned(), s(why)),
            ("at".to_owned(), n(u64::try_from(now).unwrap_or(0))),
            ("by".to_owned(), s(&std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()))),
        ]);
        let request = self.client.put_item().table_name(&self.table).set_item(Some(entry));
        request.send().await.map_err(|error| failed("the journal cannot be written", &error))?;
        Ok(state)
    }

    /// Opens, moves or closes the route of a migration: which side readers and writers use. Each
    /// change has a new epoch.
    pub(crate) async fn route(
        &self,
        migration: &str,
        read: &str,
        write: &str,
    ) -> Result<u64, String> {
        let route = self
            .change(migration, "ROUTE", |route| {
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

/// What the tasks of a run have done together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) tasks: usize,
    pub(crate) done: usize,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) samples: Vec<String>,
}

impl Progress {
    /// Adds up tasks.
    pub(crate) fn of(tasks: &[Entry]) -> Self {
        let mut progress = Self { tasks: tasks.len(), ..Self::default() };
        for task in tasks {
            progress.done += usize::from(flag(task, "done"));
            let counts = task.get("counts").and_then(|counts| counts.as_m().ok());
            for (name, count) in counts.into_iter().flatten() {
                let count = count.as_n().ok().and_then(|count| count.parse().ok()).unwrap_or(0);
                *progress.counts.entry(name.clone()).or_default() += count;
            }
            let samples = task.get("samples").and_then(|samples| samples.as_l().ok());
            progress
                .samples
                .extend(samples.into_iter().flatten().filter_map(|s| s.as_s().ok().cloned()));
        }
        progress.samples.truncate(10);
        progress
    }

    /// A count; 0 if nothing was counted.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Whether all tasks are done.
    pub(crate) fn is_done(&self) -> bool {
        self.done == self.tasks
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "tasks": self.tasks, "done": self.done, "counts": self.counts, "samples": self.samples })
    }
}
