//! Places where Weir itself stores values of items, in addition to the tables of the purge plan.
//! The receipt of a purge lists the places that the purge did not clear, and how to clear them.
//!
//! docs/migration-purge.md lists the same places; a test compares both lists.

use aws_sdk_dynamodb::Client;
use rules::fan_out::Job;
use serde_json::{Value, json};

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result};
use client::attribute::from_sdk_item;
use client::sdk_error::is_not_found;

/// The control table's name in the CloudFormation template, after the prefix.
const CONTROL_TABLE: &str = "weir-migrations";
/// The name of the fan-out jobs table in the CloudFormation template, after the prefix.
const JOBS_TABLE: &str = "fan-out-jobs";

/// A place where values of items may remain.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    /// Instructions for the operator to remove the values.
    pub(crate) remove: &'static str,
}

/// The places that a purge does not search.
pub(crate) const PLACES: [Place; 14] = [
    Place {
        name: "histories of `versions`",
        remove: "also name the table of histories in a plan of kind `purge`",
    },
    Place {
        name: "editions",
        remove: "publish an edition without these items, then run `weir editions prune`",
    },
    Place {
        name: "archives of tables without `archive: true`",
        remove: "run `weir archive erase`",
    },
    Place {
        name: "objects of the failures bucket (`quarantine/` and failure destinations)",
        remove: "delete the objects that contain the items, and the objects' earlier versions",
    },
    Place {
        name: "messages of queues and topics that are failure destinations",
        remove: "delete the messages; with `weir up`, delete the files below `destinations/` in its data folder",
    },
    Place {
        name: "logs of the functions",
        remove: "delete the log streams; with `weir up`, delete the files below `logs/` in its data folder",
    },
    Place {
        name: "error messages of functions, in `journal/` and `status.json` of `weir up`",
        remove: "stop `weir up`, then delete the messages in its data folder",
    },
    Place {
        name: "states of tumbling windows, in `checkpoints/` of `weir up`",
        remove: "nothing to do: each state is removed when its window ends",
    },
    Place {
        name: "quarantined records and logs of local workers, in `.weir/migrate`",
        remove: "delete the folder when no migration runs",
    },
    Place {
        name: "lines that `weir load` has put aside",
        remove: "delete `.weir/put-aside*.ndjson` and the file that was loaded",
    },
    Place {
        name: "plans, receipts, problems, tombstones and samples of migrations in the control table",
        remove: "save the receipts elsewhere, then delete the entries of ended migrations",
    },
    Place {
        name: "log and files of the local store",
        remove: "nothing to do: later writes replace the log and compact the files; to remove the values immediately, copy the remaining items into a new store and delete the data folder",
    },
    Place {
        name: "directories of the local store that were set aside as damaged (`node-N.set-aside-K`)",
        remove: "delete the directories in the store's data folder",
    },
    Place {
        name: "streams and point-in-time backups",
        remove: "nothing to do: stream records expire after 24 hours, backups at the end of their retention period",
    },
];

/// Returns the places that a purge does not clear, for its receipt. The first place is the table of
/// fan-out jobs. If the name of this table is unknown or the table cannot be read, its entry
/// contains the reason. The function returns no error then, because the purge is already proved.
pub(crate) async fn told(context: &Context) -> Vec<Value> {
    let mut places = vec![jobs_place(context).await];
    let place = |place: &Place| json!({ "place": place.name, "remove": place.remove });
    places.extend(PLACES.iter().map(place));
    places
}

/// Returns the receipt's entry about fan-out jobs.
async fn jobs_place(context: &Context) -> Value {
    let what = "fan-out jobs whose origins were deleted";
    let place = |place: String, found: Value, table: &str| {
        json!({
            "place": place,
            "found": found,
            "remove": format!(
                "run `weir fan-out prune --jobs-table {table}`; otherwise TTL removes each job a week after its origin was deleted"
            ),
        })
    };
    let unsearched =
        |why: &str| place(what.to_owned(), json!(format!("not searched: {why}")), "TABLE");
    let Some(table) = jobs_table(&context.control.table) else {
        return unsearched(
            "the name of the jobs table cannot be derived from the control table's name",
        );
    };
    let of_table = |found: Value| place(format!("{what}, in table `{table}`"), found, &table);
    match jobs_with_values(&context.control.client, &table).await {
        Ok(None) => unsearched(&format!("there is no table `{table}`")),
        Ok(Some(jobs)) => of_table(json!(jobs)),
        Err(failure) => of_table(json!(failure.to_string())),
    }
}

/// Returns the name of the jobs table that the CloudFormation template creates together with a
/// control table; `None` if the control table's name is not from that template.
fn jobs_table(control_table: &str) -> Option<String> {
    let prefix = control_table.strip_suffix(CONTROL_TABLE)?;
    Some(format!("{prefix}{JOBS_TABLE}"))
}

/// Returns the number of jobs that have values of deleted origins; `None` without a job table.
async fn jobs_with_values(client: &Client, table: &str) -> Result<Option<u64>> {
    let scan = client.scan().table_name(table).consistent_read(true);
    let mut items = scan.into_paginator().items().send();
    let mut found = 0;
    while let Some(item) = items.next().await {
        let item = match item {
            Err(error) if is_not_found(&error) => return Ok(None),
            Err(error) => Err(Failure::from(error)),
            Ok(item) => from_sdk_item(item),
        };
        let item = item.map_err(|error| format!("cannot read table `{table}`: {error}"))?;
        let holds = |job: Job| job.state.deleted && !job.state.values.is_empty();
        found += u64::from(Job::from_item(&item).is_ok_and(holds));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use aws_sdk_dynamodb::types::ScalarAttributeType;
    use client::attribute::to_sdk_item;
    use client::output::Output;
    use rules::Stamp;
    use rules::fan_out::{JOB_KEY, Origin, OriginState};
    use testing::store::TestStore;

    use super::*;

    #[test]
    fn the_page_about_purges_has_every_place() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migration-purge.md");
        let text = std::fs::read_to_string(page).unwrap();
        let section = text.split("## What Weir keeps of items").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for Place { name, remove } in &PLACES {
            assert!(section.contains(&format!("| {name} | {remove} |")), "{name}: {remove}");
        }
        let rows = section.lines().filter(|line| line.starts_with("| ")).count();
        // The page's table has two more rows: the header and the fan-out jobs.
        assert_eq!(rows, PLACES.len() + 2);
    }

    #[tokio::test]
    async fn jobs_that_hold_values_of_deleted_origins_are_counted() {
        let store = TestStore::open().await;
        let found = async || jobs_with_values(&store.client, "fan-out-jobs").await.unwrap();
        assert_eq!(found().await, None, "there is no such table");
        store.table_with("fan-out-jobs", &[(JOB_KEY, ScalarAttributeType::S)]).await;
        assert_eq!(found().await, Some(0));
        for (key, deleted, values) in
            [("gone", true, true), ("bare", true, false), ("there", false, true)]
        {
            let values = values.then(|| ("name".to_owned(), Some("secret".into())));
            let (stamp, values) = (Stamp::lowest(), values.into_iter().collect());
            let state = OriginState { stamp, hops: 1, values, deleted, gone_at: None };
            let origin = Origin { rule: "names".to_owned(), key: key.to_owned() };
            let put = store.client.put_item().table_name("fan-out-jobs");
            let item = to_sdk_item(&Job::begin(state, None).to_item(&origin));
            put.set_item(Some(item)).send().await.unwrap();
        }
        assert_eq!(found().await, Some(1));
    }

    #[tokio::test]
    async fn a_jobs_table_that_was_not_searched_is_reported() {
        let store = TestStore::open().await;
        for (control, why) in [
            ("dev-weir-migrations", "there is no table `dev-fan-out-jobs`"),
            ("control", "the name of the jobs table cannot be derived"),
        ] {
            let context = Context::new(&store.url, control, Output::Table);
            let told = told(&context).await;
            assert_eq!(told.len(), PLACES.len() + 1);
            let found = told[0]["found"].as_str().unwrap();
            assert!(found.starts_with("not searched: ") && found.contains(why), "{found}");
        }
    }

    #[test]
    fn the_jobs_table_is_next_to_the_control_table() {
        assert_eq!(jobs_table("weir-migrations").as_deref(), Some("fan-out-jobs"));
        assert_eq!(jobs_table("dev-weir-migrations").as_deref(), Some("dev-fan-out-jobs"));
        assert_eq!(jobs_table("control"), None);
    }
}
