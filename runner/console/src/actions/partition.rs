//! Splits a partition of a table of Weir's own store.

use serde_json::json;

use super::Done;
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;
use crate::table_shape::check_name;

/// Splits the partition that the form names, or else the largest partition.
///
/// # Errors
/// A field is invalid, or the store rejects the split.
pub(crate) async fn split(
    context: &Context,
    table: &str,
    fields: &Query,
) -> Result<Done, PageError> {
    check_name(table)?;
    let partition = fields.get("partition").map(|text| {
        let number = text.trim().parse::<u32>();
        number.map_err(|_| {
            let what = format!("`{text}` is not the number of a partition");
            PageError::bad_input(
                "partition",
                what,
                "a partition number from the list, or nothing for the largest",
            )
        })
    });
    let at = fields.get("at").map(|text| {
        let token = text.trim().parse::<u64>();
        token.map_err(|_| {
            let what = format!("`{text}` is not a token");
            PageError::bad_input("at", what, "a number below 2^64, or nothing for equal halves")
        })
    });
    let request = match (partition.transpose()?, at.transpose()?) {
        (None, None) => json!({}),
        (Some(partition), None) => json!({ "partition": partition }),
        (Some(partition), Some(at)) => json!({ "partition": partition, "at": at.to_string() }),
        (None, Some(_)) => {
            let what = "a split at a token requires a partition";
            return Err(PageError::bad_input(
                "partition",
                what,
                "a partition number from the list",
            ));
        }
    };
    if context.is_on_aws() {
        return Err(PageError::Refused("DynamoDB splits partitions automatically".to_owned()));
    }
    let split = client::partitions::split(context.endpoint(), table, &request).await;
    split?;
    Ok(Done { said: format!("split a partition of `{table}`") })
}
