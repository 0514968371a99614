//! Re-checks, one by one, the histories that seemed wrong.
//!
//! In a large table, the scans of histories and of items are minutes apart, so an item that changes
//! often seems to differ. The re-check reads the history and the item in immediate succession. They
//! match soon if the function keeps up. One match is sufficient, because a wrong history never
//! matches.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use model::json;
use rules::versions::{Head, fits_into_a_version};

use super::Place;
use super::check::{History, verdict};
use super::reading::{
    HEAD_DAMAGED, VERSION_DAMAGED, current_item, failed, stored_head, stored_versions,
};
use client::failure::{Failure, Result};

/// Maximum number of histories that are checked again. If there are more, the function is behind or
/// not running.
pub(super) const HISTORIES_MAX: usize = 1_000;
/// Maximum number of checks of one history.
const LOOKS_MAX: usize = 5;
/// The longest pause between two checks of a history. A function usually applies a change in a
/// fraction of this time.
const PAUSE_MAX: Duration = Duration::from_millis(300);
/// Number of concurrent checks.
const LOOKERS: usize = 16;

/// Keeps only the histories that were wrong in every check.
///
/// # Errors
/// When a table cannot be read.
pub(super) async fn retain_wrong(
    place: &Place,
    wrong: BTreeMap<String, &'static str>,
    grace: Duration,
) -> Result<BTreeMap<String, &'static str>> {
    let pause = grace.min(PAUSE_MAX);
    let now = place.now().await;
    let looks = stream::iter(wrong).map(|(item, before)| async move {
        let mut found = Some(before);
        for look in 0..LOOKS_MAX {
            if look > 0 {
                tokio::time::sleep(pause).await;
            }
            found = check_history(place, &item, now).await?;
            if found.is_none() {
                break;
            }
        }
        Ok::<_, Failure>(found.map(|what| (item, what)))
    });
    let left: Vec<_> = looks.buffer_unordered(LOOKERS).try_collect().await?;
    Ok(left.into_iter().flatten().collect())
}

/// Returns the fault of one history; `None` if the history is correct. Reads are strongly
/// consistent.
async fn check_history(place: &Place, text: &str, now: u64) -> Result<Option<&'static str>> {
    // DynamoDB would reject the read of a key that is too long for any history.
    let history = match fits_into_a_version(text, None) {
        Ok(()) => history_of(place, text, now).await?,
        Err(_) => None,
    };
    let key = json::item_from_str(text).map_err(|error| failed(place, Failure::fatal(error)))?;
    let item = current_item(place, &key).await?;
    Ok(verdict(text, history.as_ref(), item.as_ref()))
}

/// Reads the history under a key; `None` if the key has no history.
async fn history_of(place: &Place, text: &str, now: u64) -> Result<Option<History>> {
    let head = stored_head(place, text).await?;
    let Ok(head) = head.as_ref().map(Head::from_item).transpose() else {
        return Ok(Some(History::damaged(HEAD_DAMAGED)));
    };
    let Ok(versions) = stored_versions(place, text).await? else {
        return Ok(Some(History::damaged(VERSION_DAMAGED)));
    };
    let mut history = History::of(head);
    for version in versions {
        history.add(&version, now);
    }
    let is_there = history.head.is_some() || history.count > 0;
    Ok(is_there.then_some(history))
}
