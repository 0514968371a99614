//! Notes of problems that are no problems any more.
//!
//! Workers note what a person must look at. A comparison that finds no difference says that all of it
//! was put right before it began, so notes from before are removed: whoever reads `status` would look
//! for what is not there. Documents that could not be assembled stay noted: a way back looks at each of
//! them once more, and must not miss one.

use futures::StreamExt as _;

use super::Context;
use super::control::{Entry, n, s, text};

/// Notes of documents that could not be assembled.
const KEPT: &str = "PROBLEM#unassembled#";
/// Notes that are removed at the same time.
const AT_ONCE: usize = 16;
/// By how much the second of a note may be too early: seconds are whole, and DynamoDB's machines have
/// clocks of their own.
const EARLY_SECONDS: i64 = 5;

/// Removes the notes of a migration from before a second, by the clock of DynamoDB's answers. Those that
/// are written anew meanwhile stay, and what cannot be removed now is left to the next comparison.
///
/// # Errors
/// When the control table cannot be read.
pub(super) async fn forget(context: &Context, name: &str, before: i64) -> Result<(), String> {
    let notes = context.control.entries(name, "PROBLEM#").await?;
    let before = u64::try_from(before - EARLY_SECONDS).unwrap_or(0);
    let is_kept = |note: &&Entry| text(note, "entry").is_some_and(|e| e.starts_with(KEPT));
    futures::stream::iter(notes.iter().filter(|note| !is_kept(note)))
        .for_each_concurrent(AT_ONCE, |note| remove(context, name, note, before))
        .await;
    Ok(())
}

async fn remove(context: &Context, name: &str, note: &Entry, before: u64) {
    let Some(entry) = text(note, "entry") else { return };
    let request = context.control.client.delete_item().table_name(&context.control.table);
    let request = request
        .key("migration", s(name))
        .key("entry", s(entry))
        // Older versions noted no time.
        .condition_expression("attribute_not_exists(#at) OR #at < :before")
        .expression_attribute_names("#at", "at")
        .expression_attribute_values(":before", n(before));
    let _ = request.send().await;
}
