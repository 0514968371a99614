//! The API. Each operation has a file, which parses the JSON of a request and writes the JSON of its
//! response. The module `http` handles HTTP.
//!
//! Each operation makes its checks in DynamoDB's order:
//! 1. the types of all parameters (`SerializationException`);
//! 2. the constraints of single parameters (all failures are reported together);
//! 3. the rules of the operation (the first failure is returned);
//! 4. the existence of the table;
//! 5. the item against the table's key.

mod answer;
mod attribute_names;
mod batch;
mod batch_execute_statement;
mod batch_get_item;
mod batch_quotation;
mod batch_write_item;
mod cancellation;
mod capacity;
mod constraints;
mod continuous_backups;
mod create_table;
mod delete_item;
mod delete_table;
pub(crate) mod describe_endpoints;
mod describe_limits;
mod describe_stream;
mod describe_table;
pub mod error;
mod error_type;
mod execute_statement;
mod execute_transaction;
mod expressions;
mod get_item;
mod get_records;
mod get_shard_iterator;
mod index_choice;
mod index_parameters;
mod index_updates;
mod item_collections;
mod item_write;
mod key_elements;
mod legacy;
mod list_streams;
mod list_tables;
mod metering;
mod operation;
mod page;
mod page_request;
mod parameters;
mod policy_document;
mod put_item;
mod query;
mod resource_arn;
mod resource_policies;
mod response;
mod scan;
mod shard_iterator;
mod statements;
pub(crate) mod streams;
mod table_description;
mod table_options;
mod table_settings;
mod tables;
mod tags;
mod time_to_live;
mod transact_get_items;
mod transact_write_items;
mod update_item;
mod update_table;
mod wording;

#[cfg(test)]
mod tests;

use model::json::{self, Json};

use self::error::ApiError;
use self::operation::Operation;
use self::parameters::Parameters;
pub use self::response::Response;
use crate::store::Store;
use crate::store::long_reads::SHORT_PARSE_BYTES;

/// The maximum number of retries on another node after a read failed on a damaged disk: a store has
/// at most two other nodes.
const DAMAGE_MET_MAX: usize = 2;

/// Executes one request. `target` is `<API version>.<operation>`, the value of the header
/// `X-Amz-Target`, and `body` is the JSON of its parameters.
pub async fn handle(store: &Store, target: &str, body: &[u8]) -> Response {
    match dispatch(store, target, body).await {
        Ok(body) => Response { status: 200, body },
        Err(error) => error.to_response(),
    }
}

async fn dispatch(store: &Store, target: &str, body: &[u8]) -> Result<String, ApiError> {
    let operation = Operation::from_target(target);
    let json = match body {
        [] => None,
        body => {
            let path = operation.map_or(&[][..], Operation::items_at);
            let parse = || json::parse_with_items(body, path);
            let json = if body.len() <= SHORT_PARSE_BYTES {
                parse()
            } else {
                store.long_reads().run(parse).await
            };
            Some(json.map_err(|e| ApiError::serialization(e.to_string()))?)
        }
    };
    let operation = operation.ok_or_else(ApiError::unknown_operation)?;
    let json = json.ok_or_else(|| ApiError::serialization("The request has no body"))?;
    let parameters = Parameters::of_body(&json)?;
    let _permit = match operation.is_change(parameters) {
        true => Some(store.handover().permit_write().await?),
        false => None,
    };
    let mut is_up_to_date = is_strong_read(operation, &json);
    let all = store;
    let mut damage_met = 0;
    let mut store = if !is_up_to_date {
        // All reads of a pinned store see the same state, so a later read never sees an older state than an
        // earlier read.
        store.pin()
    } else if let Some(arc) = get_item::find_arc(store, operation, parameters) {
        store.up_to_date_in([arc].into_iter()).await?
    } else {
        store.up_to_date().await?
    };
    loop {
        let answer = call(&store, operation, parameters).await;
        // The answer of a read that needs data of other processes is discarded. A write reads only with
        // `Store::read`, which leaves nothing to fetch.
        if store.fetch_missing().await? {
            continue;
        }
        match answer {
            // A follower may not have applied the creation of a resource yet. The failed look-up changed
            // nothing, so the request is retried with the latest state.
            Err(error) if error.is_not_found() && !is_up_to_date && !store.leads() => {
                store = store.up_to_date().await?;
                is_up_to_date = true;
            }
            // A read that failed on a damaged disk can be retried on another node.
            Err(_)
                if damage_met < DAMAGE_MET_MAX
                    && store.reads_damaged()
                    && operation.is_read(parameters) =>
            {
                damage_met += 1;
                store = all.unpinned().up_to_date().await?;
                is_up_to_date = true;
            }
            answer => return answer,
        }
    }
}

/// Returns whether a request needs the latest acknowledged state. Requests on streams always need
/// it; other requests need it if any `ConsistentRead` in the request is true. In a batch, one true
/// value applies to all reads. Transactions obtain the latest state themselves.
fn is_strong_read(operation: Operation, parameters: &Json) -> bool {
    fn asks(json: &Json, depth: usize) -> bool {
        let Some(members) = json.as_object().filter(|_| depth > 0) else { return false };
        let is_true = |name: &str, value: &Json| {
            name == "ConsistentRead" && matches!(value, Json::Bool(true))
        };
        members.iter().any(|(name, value)| is_true(name, value) || asks(value, depth - 1))
    }
    // For example `{"Statements": [{"ConsistentRead": true}]}`.
    fn statements_ask(parameters: &Json) -> bool {
        let members = parameters.as_object().into_iter().flatten();
        let lists = members
            .filter(|(name, _)| name == "Statements")
            .filter_map(|(_, list)| list.as_array());
        lists.flatten().any(|statement| asks(statement, 1))
    }
    match operation {
        // A client that reads a stream through several nodes must never see an older state than in its
        // earlier requests.
        Operation::DescribeStream | Operation::GetRecords | Operation::GetShardIterator => true,
        Operation::GetItem | Operation::Query | Operation::Scan | Operation::ExecuteStatement => {
            asks(parameters, 1)
        }
        Operation::BatchExecuteStatement => statements_ask(parameters),
        // For example `{"RequestItems": {"<table>": {"ConsistentRead": true}}}`.
        Operation::BatchGetItem => asks(parameters, 3),
        _ => false,
    }
}

async fn call(
    store: &Store,
    operation: Operation,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    match operation {
        Operation::BatchGetItem => batch_get_item::batch_get_item(store, parameters).await,
        Operation::BatchWriteItem => batch_write_item::batch_write_item(store, parameters).await,
        Operation::CreateTable => create_table::create_table(store, parameters).await,
        Operation::DeleteItem => delete_item::delete_item(store, parameters).await,
        Operation::DeleteResourcePolicy => {
            resource_policies::delete_resource_policy(store, parameters).await
        }
        Operation::DescribeContinuousBackups => {
            continuous_backups::describe_continuous_backups(store, parameters)
        }
        Operation::GetResourcePolicy => resource_policies::get_resource_policy(store, parameters),
        Operation::ListTagsOfResource => tags::list_tags_of_resource(store, parameters),
        Operation::PutResourcePolicy => {
            resource_policies::put_resource_policy(store, parameters).await
        }
        Operation::TagResource => tags::tag_resource(store, parameters).await,
        Operation::UntagResource => tags::untag_resource(store, parameters).await,
        Operation::UpdateContinuousBackups => {
            continuous_backups::update_continuous_backups(store, parameters).await
        }
        Operation::DeleteTable => delete_table::delete_table(store, parameters).await,
        Operation::DescribeLimits => Ok(describe_limits::describe_limits()),
        Operation::DescribeStream => describe_stream::describe_stream(store, parameters),
        Operation::DescribeTable => describe_table::describe_table(store, parameters).await,
        Operation::DescribeTimeToLive => time_to_live::describe_time_to_live(store, parameters),
        Operation::BatchExecuteStatement => {
            batch_execute_statement::batch_execute_statement(store, parameters).await
        }
        Operation::ExecuteStatement => {
            execute_statement::execute_statement(store, parameters).await
        }
        Operation::ExecuteTransaction => {
            execute_transaction::execute_transaction(store, parameters).await
        }
        Operation::GetItem => get_item::get_item(store, parameters),
        Operation::GetRecords => get_records::get_records(store, parameters).await,
        Operation::GetShardIterator => get_shard_iterator::get_shard_iterator(store, parameters),
        Operation::ListStreams => list_streams::list_streams(store, parameters),
        Operation::ListTables => list_tables::list_tables(store, parameters),
        Operation::PutItem => put_item::put_item(store, parameters).await,
        Operation::Query => query::query(store, parameters).await,
        Operation::Scan => scan::scan(store, parameters).await,
        Operation::TransactGetItems => {
            transact_get_items::transact_get_items(store, parameters).await
        }
        Operation::TransactWriteItems => {
            transact_write_items::transact_write_items(store, parameters).await
        }
        Operation::UpdateItem => update_item::update_item(store, parameters).await,
        Operation::UpdateTable => update_table::update_table(store, parameters).await,
        Operation::UpdateTimeToLive => time_to_live::update_time_to_live(store, parameters).await,
    }
}
