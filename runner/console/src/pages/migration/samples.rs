//! The samples of a migration for its page.

use std::time::Duration;

use model::Item;
use model::json::item_to_string;
use operations::migrate::Context as Migrate;
use operations::migrate::api::{self, Plan, Stands};
use serde_json::Value;

use super::view::{Made, Sample};

/// The number of sample items of each source table.
const ITEMS: u64 = 3;
/// The timeout of reading the samples. On a table with many deleted items, a scan may be slow.
const LIMIT: Duration = Duration::from_secs(2);

/// Reads the samples. If they cannot be read, returns no samples and the reason.
pub(super) async fn read(migrate: &Migrate, plan: &Plan) -> (Vec<Sample>, Option<String>) {
    let read = tokio::time::timeout(LIMIT, api::samples(migrate, plan, ITEMS)).await;
    match read {
        Ok(Ok(samples)) => (samples.into_iter().map(shown).collect(), None),
        Ok(Err(failure)) => (Vec::new(), Some(failure.to_string())),
        Err(_) => (
            Vec::new(),
            Some(format!(
                "the source and target tables did not answer within {} s",
                LIMIT.as_secs()
            )),
        ),
    }
}

fn shown(sample: api::Sample) -> Sample {
    let (after, refused) = match sample.after {
        Ok(made) => (made.into_iter().map(shown_target).collect(), None),
        Err(failure) => (Vec::new(), Some(failure.to_string())),
    };
    Sample { table: sample.table, before: json(&sample.before), after, refused }
}

fn shown_target(made: api::Made) -> Made {
    let (stands, found) = match &made.stands {
        Stands::Equal => ("equal", None),
        Stands::Missing => ("missing", None),
        Stands::Different(found) => ("different", Some(json(found))),
    };
    Made { table: made.table, item: made.item.as_ref().map(json), stands, found }
}

/// Returns an item in DynamoDB JSON, in which numbers are strings.
fn json(item: &Item) -> Value {
    serde_json::from_str(&item_to_string(item)).unwrap_or_default()
}
