//! `weir fan-out prune`: removes the jobs of deleted origins, with the values in them.
//!
//! TTL removes these jobs a week after the deletion. This subcommand removes them immediately, for
//! example after a purge. It does not remove open jobs, and jobs that another process wrote since
//! the subcommand read them.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rules::fan_out::{JOB_KEY, JOB_REVISION, Job, Origin};
use serde_json::json;

use super::jobs;
use client::exit::Exit;
use client::failure::{Context, Result};
use client::interruption;
use client::output::{self, Output, counted, say};
use client::sdk_error::was_applied;

/// Number of concurrent deletes.
const AT_ONCE: usize = 16;

/// Returns true if a job is complete and its origin was deleted, so that the job only stores the
/// origin's last state.
fn is_prunable(job: &Job) -> bool {
    job.done && job.state.deleted
}

/// Removes the jobs of deleted origins, for all rules or for one rule.
///
/// # Errors
/// When the table cannot be read or written. Jobs that were already removed are not restored.
pub(super) async fn run(
    client: &Client,
    table: &str,
    rule: Option<&str>,
    dry_run: bool,
    output: Output,
) -> Result<Exit> {
    let (mut meant, mut open) = (Vec::new(), 0_u64);
    jobs::each(client, table, |key, job| {
        let Some((origin, job)) = Origin::from_job_key(key).zip(job) else { return };
        if rule.is_some_and(|rule| rule != origin.rule) || !job.state.deleted {
            return;
        }
        match is_prunable(&job) {
            true => meant.push((key.to_owned(), job.revision)),
            false => open += 1,
        }
    })
    .await?;
    let found = meant.len();
    let removed = match dry_run {
        true => 0,
        false => {
            stream::iter(meant)
                .map(|(key, revision)| remove(client, table, key, revision))
                .buffer_unordered(AT_ONCE)
                .try_fold(0_u64, async |sum, is_removed| {
                    let sum = sum + u64::from(is_removed);
                    interruption::reached(format!("{sum} of {found} jobs removed"));
                    Ok(sum)
                })
                .await?
        }
    };
    output::rows(
        output,
        &["found", "removed", "open"],
        &[vec![json!(found), json!(removed), json!(open)]],
    );
    if open > 0 {
        let jobs = counted(open, "job of a deleted origin is", "jobs of deleted origins are");
        say(&format!("{jobs} open and not removed: see `weir fan-out jobs --open`"));
        return Ok(Exit::Differences);
    }
    Ok(Exit::Done)
}

/// Removes a job if it still has this revision. Returns whether it was removed.
async fn remove(client: &Client, table: &str, key: String, revision: u64) -> Result<bool> {
    let request = client
        .delete_item()
        .table_name(table)
        .key(JOB_KEY, SdkValue::S(key.clone()))
        .condition_expression("#revision = :revision")
        .expression_attribute_names("#revision", JOB_REVISION)
        .expression_attribute_values(":revision", SdkValue::N(revision.to_string()));
    was_applied(request.send().await).context(|| format!("cannot remove job `{key}`"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use aws_sdk_dynamodb::types::ScalarAttributeType;
    use rules::Stamp;
    use rules::fan_out::OriginState;

    use super::*;
    use client::attribute::to_sdk_item;
    use testing::store::TestStore;

    async fn keys(store: &TestStore) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        let add = |key: &str, _| {
            keys.insert(key.to_owned());
        };
        jobs::each(&store.client, "jobs", add).await.unwrap();
        keys
    }

    #[tokio::test]
    async fn jobs_of_deleted_origins_go_and_all_others_stay() {
        let store = TestStore::open().await;
        store.table_with("jobs", &[(JOB_KEY, ScalarAttributeType::S)]).await;
        let mut all = BTreeSet::new();
        for (name, deleted, done) in
            [("gone", true, true), ("going", true, false), ("there", false, true)]
        {
            for rule in ["r", "s"] {
                let values = BTreeMap::from([("n".to_owned(), Some("secret".into()))]);
                let stamp = Stamp::lowest();
                let state = OriginState { stamp, hops: 1, values, deleted, gone_at: None };
                let origin = Origin { rule: rule.to_owned(), key: name.to_owned() };
                all.insert(origin.job_key());
                let item = Job { done, ..Job::begin(state, None) }.to_item(&origin);
                let put = store.client.put_item().table_name("jobs");
                put.set_item(Some(to_sdk_item(&item))).send().await.unwrap();
            }
        }
        let prune = async |rule, dry_run| {
            run(&store.client, "jobs", rule, dry_run, Output::Json).await.unwrap()
        };
        assert_eq!(prune(None, true).await, Exit::Differences);
        assert_eq!(keys(&store).await, all);
        assert_eq!(prune(Some("r"), false).await, Exit::Differences, "one is under way");
        all.remove("r#gone");
        assert_eq!(keys(&store).await, all);
        prune(None, false).await;
        all.remove("s#gone");
        assert_eq!(keys(&store).await, all);
        // The job was written since it was read.
        assert_eq!(remove(&store.client, "jobs", "r#there".to_owned(), 7).await, Ok(false));
        assert_eq!(keys(&store).await, all);
    }
}
