//! What a backfill by touching leaves that was given up: each of its segments is read once more, from its
//! beginning, to take marks off. A segment that was done may have some as well, such as where a writer
//! put an item back that it had read with its mark.
//!
//! Nothing is taken off here; workers do that, and know by the state that nothing is touched any more.

use aws_sdk_dynamodb::types::AttributeValue as Sdk;

use super::control::{Entry, flag, text};
use super::{Context, true_value};

/// What the entries of these tasks have in their names.
const ENTRIES: &str = "#touch#";
/// In a task: it was begun anew, to take marks off.
const CLEARS: &str = "clears";
/// What a task forgets that is begun anew. Whoever works on it notes nothing of that any more.
const FORGOTTEN: [&str; 7] =
    ["cursor", "owner", "leased_until", "aside", "failing", "failed", "superseded"];

/// Begins those of the backfill's tasks anew that were not yet, for marks alone; each change is a record,
/// which wakes a worker. Gives whether there were any: then `tasks` is not how they stand. Whoever says
/// it again, or says it at the same time, does nothing more.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn begin_clearing(
    context: &Context,
    name: &str,
    tasks: &[Entry],
) -> Result<bool, String> {
    let mut is_begun = false;
    let entries = tasks.iter().filter(|task| !flag(task, CLEARS));
    for entry in entries.filter_map(|task| text(task, "entry")) {
        if !entry.contains(ENTRIES) {
            continue;
        }
        is_begun = true;
        context.control.change(name, entry, begun_anew).await?;
    }
    Ok(is_begun)
}

/// Changes a task to one that is begun anew; gives whether it was not.
fn begun_anew(task: &mut Entry) -> bool {
    if flag(task, CLEARS) {
        return false;
    }
    task.retain(|member, _| !FORGOTTEN.contains(&member.as_str()));
    task.insert("done".to_owned(), Sdk::Bool(false));
    task.insert(CLEARS.to_owned(), true_value());
    true
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue as Sdk;
    use rules::migration::Phase;
    use rules::migration::plan::{Backfill, Plan};

    use super::super::beginning::begin;
    use super::super::control::{phase_of, s};
    use super::super::switching_tests::{NAME, plan, serve};
    use super::super::{Entry, abort};
    use super::*;
    use crate::exit::Exit;

    #[tokio::test]
    async fn what_was_touched_and_is_given_up_is_read_once_more() {
        let served = serve().await;
        let (context, control) = (&served.context, &served.context.control);
        let plan = Plan { backfill: Backfill::Touch, segments: 2, ..plan() };
        begin(context, &plan, 0).await.unwrap();
        let tasks = async || control.entries(NAME, "TASK#0#touch#cats#").await.unwrap();
        let work = async |done: usize| {
            for task in tasks().await.into_iter().take(done) {
                let worked = |task: &mut Entry| {
                    task.insert("cursor".to_owned(), s("half-way"));
                    task.insert("done".to_owned(), Sdk::Bool(true)).is_some()
                };
                control.change(NAME, text(&task, "entry").unwrap(), worked).await.unwrap();
            }
        };
        let is_unswept = async || flag(&context.advance(NAME).await.unwrap().0, "unswept");
        // One segment is done, of which marks may be left as well.
        work(1).await;
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        for task in tasks().await {
            assert!(!flag(&task, "done") && !task.contains_key("cursor"), "{task:?}");
        }
        assert!(is_unswept().await);
        work(1).await;
        assert!(is_unswept().await, "a segment is not read yet");
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        work(2).await;
        assert!(!is_unswept().await);
        assert_eq!(phase_of(&context.state(NAME).await.unwrap()), Phase::Aborted);
        assert_eq!(begin_clearing(context, NAME, &tasks().await).await, Ok(false));
    }
}
