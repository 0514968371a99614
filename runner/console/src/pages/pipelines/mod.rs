//! Pipelines: which streams the store has, and how far each mapping has got.

mod html;
mod view;

pub(crate) use self::html::html;
use self::view::{Stream, View};
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// The maximum number of streams that the page shows.
const STREAMS_MAX: usize = 100;

/// Collects what the page shows.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn view(context: &Context, _query: &Query) -> Result<View, PageError> {
    let client = context.streams();
    let arns = client::shards::arns(client, None).await.map_err(PageError::Store)?;
    let of_arn = |arn: &String| {
        let table = arn.split_once(":table/").and_then(|(_, rest)| rest.split('/').next());
        Stream { table: table.unwrap_or_default().to_owned(), arn: arn.clone() }
    };
    let streams = arns.iter().take(STREAMS_MAX).map(of_arn).collect();
    Ok(View { schema: "weir.console.pipelines/v1", runs: context.running().is_some(), streams })
}
