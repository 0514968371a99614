//! `/tables/NAME`: a query builder over one table, and the items that it finds.
//!
//! The page sends one Query or Scan request, so it never reads a complete table.

mod code;
mod columns;
mod export;
mod form;
mod html;
mod path;
mod request;
mod rows;
mod view;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, ConsumedCapacity, ReturnConsumedCapacity,
};
use client::attribute::{from_sdk_item, to_sdk_item};
use client::sdk_error::{error_text, is_not_found};

pub(crate) use self::export::{Export, export};
pub(crate) use self::html::html;
pub(crate) use self::view::View;

use self::code::Code;
use self::form::Form;
use self::request::{Operation, Problem, Request};
use self::view::{Asked, Capacity, Items};
use crate::context::{Context, Writes};
use crate::error::PageError;
use crate::item_json::ItemJson;
use crate::query::Query;
use crate::table_shape::TableShape;

/// Collects the data of the page of a table.
///
/// # Errors
/// The table does not exist, or the store does not answer. An invalid field of the form is not an
/// error: the page shows the problem beside the form.
pub(crate) async fn view(context: &Context, name: &str, query: &Query) -> Result<View, PageError> {
    let table = TableShape::read(context.dynamodb(), name).await?;
    let form = Form::of(query);
    let (mut asked, mut result, mut problem) = (None, None, None);
    match Request::of(&form, &table) {
        Err(wrong) => problem = Some(wrong),
        Ok(request) => {
            match run(context.dynamodb(), &request).await {
                Ok(items) => result = Some(items),
                Err(Failure::Refused(refused)) => problem = Some(refused),
                Err(Failure::Page(error)) => return Err(error),
            }
            asked = Some(Asked {
                operation: request.operation,
                request: serde_json::from_str(&request.body()).unwrap_or_default(),
                code: Code::of(&request),
            });
        }
    }
    let allow_writes = matches!(context.writes(), Writes::Allowed(_));
    Ok(View { schema: "weir.console.table/v1", table, form, problem, asked, result, allow_writes })
}

/// The reason why a request has no result.
enum Failure {
    /// The store rejected the request: the page shows the form with the problem.
    Refused(Problem),
    /// The page cannot be shown.
    Page(PageError),
}

impl Failure {
    fn of<E>(error: &SdkError<E>, table: &str) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        if is_not_found(error) {
            return Self::Page(PageError::NotFound { what: format!("table `{table}`") });
        }
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
        if code != Some("ValidationException") {
            return Self::Page(PageError::Store(error_text(error)));
        }
        let what = error_text(error);
        let instead = remedy(&what).to_owned();
        Self::Refused(Problem { what, place: "the request".to_owned(), instead })
    }
}

/// Returns the correction of a form, for the message with which DynamoDB rejected its request.
fn remedy(message: &str) -> &'static str {
    let remedies = [
        ("non-primary key attributes", "a condition on the key instead of the filter, or a Scan"),
        ("Consistent reads are not supported", "the consistency `eventual`"),
        ("Incorrect operand type", "an operator that accepts the type of the filter's value"),
        ("starting key", "an empty `after`, to begin with the first page"),
    ];
    let found = remedies.iter().find(|(part, _)| message.contains(part));
    found.map_or("another condition; the message says which part is wrong", |(_, remedy)| remedy)
}

/// Sends a request and returns the page of items.
async fn run(client: &Client, request: &Request) -> Result<Items, Failure> {
    match request.operation {
        Operation::Query => query(client, request).await,
        Operation::Scan => scan(client, request).await,
    }
}

type SdkItem = std::collections::HashMap<String, SdkValue>;

async fn query(client: &Client, request: &Request) -> Result<Items, Failure> {
    let sent = client
        .query()
        .table_name(&request.table)
        .set_index_name(request.index.clone())
        .set_key_condition_expression(request.key_condition.clone())
        .set_filter_expression(request.filter.clone())
        .set_projection_expression(request.projection.clone())
        .set_expression_attribute_names(request.placeholders.sdk_names())
        .set_expression_attribute_values(request.placeholders.sdk_values())
        .limit(request.limit)
        .scan_index_forward(!request.backward)
        .consistent_read(request.consistent)
        .set_exclusive_start_key(request.start.as_ref().map(to_sdk_item))
        .return_consumed_capacity(ReturnConsumedCapacity::Indexes)
        .send()
        .await
        .map_err(|error| Failure::of(&error, &request.table))?;
    let (read, capacity) = (sent.scanned_count(), sent.consumed_capacity().map(capacity));
    let (items, next) = (sent.items, sent.last_evaluated_key);
    page(items.unwrap_or_default(), next, read, capacity)
}

async fn scan(client: &Client, request: &Request) -> Result<Items, Failure> {
    let sent = client
        .scan()
        .table_name(&request.table)
        .set_index_name(request.index.clone())
        .set_filter_expression(request.filter.clone())
        .set_projection_expression(request.projection.clone())
        .set_expression_attribute_names(request.placeholders.sdk_names())
        .set_expression_attribute_values(request.placeholders.sdk_values())
        .limit(request.limit)
        .consistent_read(request.consistent)
        .set_exclusive_start_key(request.start.as_ref().map(to_sdk_item))
        .return_consumed_capacity(ReturnConsumedCapacity::Indexes)
        .send()
        .await
        .map_err(|error| Failure::of(&error, &request.table))?;
    let (read, capacity) = (sent.scanned_count(), sent.consumed_capacity().map(capacity));
    let (items, next) = (sent.items, sent.last_evaluated_key);
    page(items.unwrap_or_default(), next, read, capacity)
}

fn page(
    items: Vec<SdkItem>,
    next: Option<SdkItem>,
    read: i32,
    capacity: Option<Capacity>,
) -> Result<Items, Failure> {
    let convert =
        |item| from_sdk_item(item).map(ItemJson).map_err(|failure| Failure::Page(failure.into()));
    Ok(Items {
        items: items.into_iter().map(convert).collect::<Result<_, _>>()?,
        read: read.into(),
        capacity: capacity.unwrap_or_default(),
        next: next.filter(|key| !key.is_empty()).map(convert).transpose()?,
    })
}

fn capacity(consumed: &ConsumedCapacity) -> Capacity {
    let global = consumed.global_secondary_indexes().into_iter().flatten();
    let indexes = global.chain(consumed.local_secondary_indexes().into_iter().flatten());
    Capacity {
        total: consumed.capacity_units().unwrap_or_default(),
        table: consumed.table().and_then(|table| table.capacity_units()).unwrap_or_default(),
        indexes: indexes
            .map(|(name, used)| (name.clone(), used.capacity_units().unwrap_or_default()))
            .collect(),
    }
}
