//! Erasure: permanently removes the rows of a key or a tenant from the archive, and writes a receipt.
//!
//! Every object of the table is read. An object that contains a matching row is replaced by a copy without
//! the row, unless the object changed after it was read. The copy keeps the event ids of erased rows, so that
//! a redelivered record does not restore its row; an event id reveals nothing about the item. Passes over the
//! table repeat until a pass finds no matching row. Each pass after the first reads only what was written
//! since the previous pass began. Finally, an erasure in a versioned bucket removes all noncurrent versions
//! of the table's objects, because these may contain the rows too.
//!
//! An erasure with a name keeps its progress and one receipt, which lists each row before the row is erased.
//! So the erasure can be interrupted at any point and resumed by the same request, and the receipt still
//! lists all rows.
//!
//! Compaction must not run at the same time. One function with a reserved concurrency of one performs both.
//! Copies of the archive in other places are not erased.

mod kept_columns;
mod pass;
mod receipt;

use std::sync::Arc;

use model::{AttributeValue, Item, json};
use rules::migration::{self, ProgramError, UndecidedCondition};
use xxhash_rust::xxh3::xxh3_128;

pub use self::pass::Progress;
pub use self::receipt::{Erasure, ErasureReceipt, ErasureSummary};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::object_store::ObjectMaintenance;

/// Upper bound of passes over a table. The first pass erases, the second confirms; more are
/// necessary only if writers add matching rows meanwhile.
const PASSES_MAX: usize = 5;

/// A condition in jq about archived rows. It is evaluated as in a purge, so it selects an archived
/// row exactly if a purge selects the live item.
#[derive(Clone, Debug)]
pub struct Condition(Arc<migration::Condition>);

impl Condition {
    /// Parses and compiles a condition.
    ///
    /// # Errors
    /// Returns why the condition is invalid.
    pub fn parse(program: &str) -> Result<Self, ProgramError> {
        Ok(Self(Arc::new(migration::Condition::compile(program)?)))
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.0.program() == other.0.program()
    }
}

impl Eq for Condition {}

/// The selection of the rows to erase: an item must meet all of these conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Attributes and their values: a key, a partition key, or the attribute of a tenant.
    pub equals: Item,
    /// Pairs of a string attribute and the prefix of its value, such as a tenant's prefix in the
    /// key.
    pub begins_with: Vec<(String, String)>,
    /// A condition that the item must meet, as in a purge.
    pub condition: Option<Condition>,
}

impl Subject {
    /// Returns true if an item is to be erased.
    ///
    /// # Errors
    /// When the condition fails for this item, or yields neither true nor false.
    pub fn is_met_by(&self, item: &Item) -> Result<bool, UndecidedCondition> {
        let is_equal = self.equals.iter().all(|(name, value)| item.get(name) == Some(value))
            && self.begins_with.iter().all(|(name, prefix)| {
                matches!(item.get(name), Some(AttributeValue::S(text)) if text.starts_with(prefix))
            });
        match &self.condition {
            Some(Condition(condition)) if is_equal => condition.is_met_by(item),
            _ => Ok(is_equal),
        }
    }

    /// Returns true if the subject has no condition and would therefore match every item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.equals.is_empty()
            && self.begins_with.iter().all(|(_, prefix)| prefix.is_empty())
            && self.condition.is_none()
    }

    /// Returns a hash of the subject. It identifies the subject of a resumed erasure without
    /// revealing the key.
    fn fingerprint(&self) -> String {
        let program = self.condition.as_ref().map(|Condition(condition)| condition.program());
        let text =
            format!("{:?}", (json::item_to_string(&self.equals), &self.begins_with, program));
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }
}

/// Erases rows from one archive.
#[derive(Clone, Debug)]
pub struct Eraser<O> {
    /// The object store that contains the archive.
    pub store: O,
    /// Prefix of the names of all objects of the archive.
    pub prefix: String,
    /// Prefix of the names of receipts, which is outside the archive's prefix.
    pub receipts_prefix: String,
    /// Retry policy of failed requests.
    pub retry: RetryPolicy,
}

impl<O: ObjectMaintenance> Eraser<O> {
    /// Erases rows and writes the receipt. The call is idempotent: repeating it erases nothing
    /// more. Under the same `name`, the receipt covers all calls.
    ///
    /// # Errors
    /// When the archive cannot be read or changed, or the deadline has passed. Rows that were
    /// erased stay erased. The caller must repeat the call until it returns a receipt; a call with
    /// a name resumes. If an unfinished erasure of another subject has the same name, nothing is
    /// erased.
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
                "the erasure has no key, no attribute and no condition, so it would erase everything; write at least one of them".to_owned(),
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
            // The unfinished erasure's receipt lists rows that may still exist. Completing it for
            // another subject would state that these rows are erased.
            return Err(Failure::Fatal(format!(
                "nothing was erased: the name `{name}` belongs to an unfinished erasure of other rows; repeat that erasure until it returns a receipt, and give the new erasure another name"
            )));
        }
        receipt.erased_seconds = now_seconds;
        receipt.passes = 0;
        match self.erase_and_forget(subject, &mut receipt, deadline).await {
            Ok(()) => Ok(receipt),
            Err(Failure::Retry(_)) if deadline.is_over() => Err(Failure::Retry(match name {
                Some(name) => format!(
                    "the function ran out of time before the erasure `{name}` was complete; repeat the request to resume it"
                ),
                None => "the function ran out of time before the erasure was complete; an erasure without a name starts over each time, so add a `name` and repeat the request until it returns a receipt".to_owned(),
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
        // A resumed pass may have begun days ago in an earlier call. Only a new pass reads the
        // objects that were written since then, so a resumed pass cannot confirm the erasure.
        let mut is_confirmed = known.is_none();
        let mut progress = known.unwrap_or_else(|| {
            receipt.objects_read = 0;
            Progress::begin(subject.fingerprint(), now_seconds)
        });
        loop {
            if receipt.passes == PASSES_MAX {
                return Err(Failure::Retry(format!(
                    "each of {PASSES_MAX} passes found rows to erase, so matching items are still being deleted from the table; stop these deletes, then repeat the erasure"
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

    /// Removes the noncurrent versions of all objects of the table from a versioned bucket,
    /// including objects that compaction removed. Any of these versions may contain an erased row.
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

    /// Returns the prefix of the names of the table's objects.
    fn folder_of(&self, table: &str) -> String {
        format!("{}table={table}/", self.prefix)
    }

    /// Repeats a request while the store does not respond, up to the limits of `retry`.
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
