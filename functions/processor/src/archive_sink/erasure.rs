//! Erasure: takes the rows of a key or a tenant out of the archive, for good, with a receipt.
//!
//! Every object of the table is read; one that holds such a row is replaced by itself without the
//! row, if it is still the object that was read. It keeps the event ids of what was erased, so a
//! record that is delivered again does not bring its row back; an event id says nothing about the
//! item. Passes are repeated until one finds nothing; each but the first looks at what was written
//! since the one before it began. Then everything that a versioned bucket keeps of earlier contents
//! of the table's objects is removed, whoever replaced or removed them: an erasure that died, or
//! compaction, which leaves its parts there.
//!
//! An erasure that has a name keeps one receipt, which names each row before it is erased, and how
//! far the erasure has got: so it may die anywhere, be asked for again, go on where it ended, and
//! still tell of all that it erased.
//!
//! Compaction must not run at the same time: both belong to one function with a reserved
//! concurrency of one. Copies that others made of the archive are beyond its reach.

mod kept_columns;
mod pass;
mod receipt;

use std::sync::Arc;

use model::{AttributeValue, Item, json};
use rules::migration;
use xxhash_rust::xxh3::xxh3_128;

pub use self::pass::Progress;
pub use self::receipt::{Erasure, ErasureReceipt, ErasureSummary};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::object_store::ObjectMaintenance;

/// Passes over a table at most: the first erases, the second confirms, the others are for writers
/// that add rows of the key meanwhile.
const PASSES_MAX: usize = 5;

/// A condition, the same as that of a purge: what it means for a live item it means for a row.
#[derive(Clone, Debug)]
pub struct Condition(Arc<migration::Condition>);

impl Condition {
    /// Checks and compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(program: &str) -> Result<Self, String> {
        let compiled = migration::Condition::compile(program).map_err(|error| error.reason)?;
        Ok(Self(Arc::new(compiled)))
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.0.program() == other.0.program()
    }
}

impl Eq for Condition {}

/// Whose rows are erased: items for which all parts hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Attributes and their values: a key, or a partition key, or the attribute of a tenant.
    pub equals: Item,
    /// String attributes and what they begin with, such as a tenant's prefix in the key.
    pub begins_with: Vec<(String, String)>,
    /// What a purge removes.
    pub condition: Option<Condition>,
}

impl Subject {
    /// Whether an item is meant.
    ///
    /// # Errors
    /// When the condition cannot be carried out for this item, or is neither true nor false.
    pub fn is_met_by(&self, item: &Item) -> Result<bool, String> {
        let is_equal = self.equals.iter().all(|(name, value)| item.get(name) == Some(value))
            && self.begins_with.iter().all(|(name, prefix)| {
                matches!(item.get(name), Some(AttributeValue::S(text)) if text.starts_with(prefix))
            });
        match &self.condition {
            Some(Condition(condition)) if is_equal => condition.is_met_by(item),
            _ => Ok(is_equal),
        }
    }

    /// Whether it says nothing, and so would mean every item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.equals.is_empty()
            && self.begins_with.iter().all(|(_, prefix)| prefix.is_empty())
            && self.condition.is_none()
    }

    /// Says which subject an erasure that goes on is of, without telling a key to its readers.
    fn fingerprint(&self) -> String {
        let program = self.condition.as_ref().map(|Condition(condition)| condition.program());
        let text =
            format!("{:?}", (json::item_to_string(&self.equals), &self.begins_with, program));
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }
}

/// Erases from one archive.
#[derive(Clone, Debug)]
pub struct Eraser<O> {
    /// Where the archive is.
    pub store: O,
    /// What the names of all objects of the archive begin with.
    pub prefix: String,
    /// What the names of receipts begin with; outside of the archive's prefix.
    pub receipts_prefix: String,
    /// For requests that fail.
    pub retry: RetryPolicy,
}

impl<O: ObjectMaintenance> Eraser<O> {
    /// Erases, and keeps the receipt beside the archive. Erasing the same again finds nothing and
    /// gives a receipt that says so; under the same `name`, the receipt of all of it.
    ///
    /// # Errors
    /// When the archive cannot be read or changed, or the time is over: what was erased up to then
    /// is, and the call must be repeated until it gives a receipt. Under a name it goes on where it
    /// ended. When an erasure of another subject under the name is not done, nothing is erased.
    pub async fn erase(
        &self,
        table: &str,
        subject: &Subject,
        name: Option<&str>,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<ErasureReceipt, Failure> {
        if subject.is_empty() {
            return Err(Failure::Fatal(
                "the erasure names no key and no attribute; it would erase everything".to_owned(),
            ));
        }
        let fresh = ErasureReceipt { table: table.to_owned(), ..ErasureReceipt::default() };
        let mut receipt = match name {
            None => fresh,
            Some(name) => deadline.limit(self.begun(name, fresh)).await?,
        };
        if let (Some(name), Some(known)) = (name, &receipt.progress)
            && known.subject != subject.fingerprint()
        {
            // Its receipt names rows that may still stand, and would say that they are gone.
            return Err(Failure::Fatal(format!(
                "an erasure of other rows has the name `{name}` and is not done: ask for those again under this name until there is a receipt, and give this one another name; nothing was erased"
            )));
        }
        receipt.erased_seconds = now_seconds;
        receipt.passes = 0;
        match self.erase_and_forget(subject, &mut receipt, deadline).await {
            Ok(()) => Ok(receipt),
            Err(Failure::Retry(_)) if deadline.is_over() => Err(Failure::Retry(match name {
                Some(name) => format!(
                    "the time was over before the erasure `{name}` was done; ask for the same again, and it goes on where it ended"
                ),
                None => "the time was over before the erasure was done, and without a name it begins anew each time; give it a `name`, under which it goes on when it is asked for again".to_owned(),
            })),
            Err(failure) => Err(failure),
        }
    }

    async fn erase_and_forget(
        &self,
        subject: &Subject,
        receipt: &mut ErasureReceipt,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let now_seconds = receipt.erased_seconds;
        let known = receipt.progress.take();
        // A pass that began in an earlier call may have lasted for days: what was written behind it
        // is looked at by one that begins now.
        let mut is_confirmed = known.is_none();
        let mut progress = known.unwrap_or_else(|| {
            receipt.objects_read = 0;
            Progress::begin(subject.fingerprint(), now_seconds)
        });
        loop {
            if receipt.passes == PASSES_MAX {
                return Err(Failure::Retry(format!(
                    "rows of the subject were found in each of {PASSES_MAX} passes; somebody still deletes its items: stop that, and erase again"
                )));
            }
            receipt.passes += 1;
            let is_clean = self.pass(subject, &mut progress, receipt, deadline).await?;
            progress = progress.next_pass(now_seconds);
            if is_clean && is_confirmed {
                break;
            }
            is_confirmed = true;
        }
        self.forget_earlier(&progress, receipt, deadline).await?;
        receipt.progress = None;
        receipt.note_erasure(now_seconds);
        deadline.limit(self.keep_receipt(receipt)).await
    }

    /// Removes what a versioned bucket kept of all objects of the table, also of those that
    /// compaction removed: any of them may have held such a row.
    async fn forget_earlier(
        &self,
        progress: &Progress,
        receipt: &mut ErasureReceipt,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let folder = self.folder_of(&receipt.table);
        let mut after = String::new();
        loop {
            let forget = self.persist(|| self.store.forget_earlier(&folder, &after));
            let forgotten = deadline.limit(forget).await?;
            receipt.earlier_contents_removed += forgotten.contents;
            let Some(next) = forgotten.after else { return Ok(()) };
            after = next;
            if forgotten.contents > 0 {
                deadline.limit(self.keep_progress(progress, receipt)).await?;
            }
        }
    }

    /// What the names of the table's objects begin with.
    fn folder_of(&self, table: &str) -> String {
        format!("{}table={table}/", self.prefix)
    }

    /// Tries again what the store did not answer.
    async fn persist<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<T, Failure> {
        let mut last = Failure::Retry("no attempt was made".to_owned());
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            match request().await {
                Err(failure @ Failure::Retry(_)) => last = failure,
                answered => return answered,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests;
