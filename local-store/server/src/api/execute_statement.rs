//! `ExecuteStatement`: executes one PartiQL statement. The result of a `SELECT` is returned in pages.
//!
//! `statements` plans a statement, and `page` reads a page.

use expression::partiql::{Select, Statement};
use model::{AttributeType, Item, KeyAttribute, json};
use partition::{IndexKind, ItemRange, TokenRange};

use super::answer::begin_member;
use super::capacity::{CapacityDetail, Consumption};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY};
use super::error::ApiError;
use super::index_choice::Source;
use super::item_write::submit_write;
use super::page::answer_statement_page;
use super::page_request::PageRequest;
use super::parameters::Parameters;
use super::shard_iterator::decode_hexadecimal;
use super::statements::{
    EXISTS_MISPLACED, SEVERAL_KEY_ATTRIBUTES, StatementParameters, StatementWrite, check_key_sizes,
};
use super::tables;
use crate::mac::MAC_BYTES;
use crate::store::Store;
use crate::token_key::TokenKey;

/// The domain of the MACs of statement tokens. A MAC of another domain is invalid for these tokens.
const KIND: &str = "statement token";

/// The options of a `SELECT` in addition to its statement.
struct SelectOptions<'j> {
    is_consistent: bool,
    limit: Option<i64>,
    token: Option<&'j str>,
    capacity_detail: CapacityDetail,
}

pub(super) async fn execute_statement(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let statement = StatementParameters::read(parameters)?;
    let is_consistent = parameters.boolean("ConsistentRead")?.unwrap_or(false);
    let limit = parameters.integer("Limit")?;
    let token = parameters.string("NextToken")?;
    let capacity = parameters.string("ReturnConsumedCapacity")?;
    let mut constraints = Constraints::new();
    statement.constrain(&mut constraints, format_args!(""));
    constraints.one_of("returnConsumedCapacity", capacity, RETURN_CONSUMED_CAPACITY);
    constraints.range("limit", limit, 1, i64::from(i32::MAX));
    constraints.finish()?;

    let capacity_detail = CapacityDetail::from_parameter(capacity);
    match statement.parse()? {
        Statement::Select(select) => {
            let options = SelectOptions { is_consistent, limit, token, capacity_detail };
            answer_select(store, &select, statement.fingerprint(), &options).await
        }
        Statement::Exists(_) => Err(ApiError::validation(EXISTS_MISPLACED)),
        other => {
            let planned = StatementWrite::of(store, other, statement.returns_item_on_failure())?;
            answer_write(store, planned, capacity_detail).await
        }
    }
}

async fn answer_write(
    store: &Store,
    planned: StatementWrite,
    capacity_detail: CapacityDetail,
) -> Result<String, ApiError> {
    let StatementWrite { write, context } = planned;
    let written = submit_write(store, &context.table, write).await;
    let written = written.map_err(|error| error.for_insert(context.is_insert))?;
    let mut out = String::from("{");
    begin_member(&mut out, "Items");
    out.push('[');
    if let Some(item) = context.returned(&written) {
        json::write_item(&mut out, &item);
    }
    out.push(']');
    let consumption = Consumption::of_write(&context.table, &written, capacity_detail);
    capacity_detail.write_member(&mut out, &context.name, consumption);
    out.push('}');
    Ok(out)
}

async fn answer_select(
    store: &Store,
    select: &Select,
    fingerprint: u64,
    options: &SelectOptions<'_>,
) -> Result<String, ApiError> {
    let table = tables::find_for_items(store, &select.table)?;
    let source = find_source(&table, select, options.is_consistent)?;
    let filter = select.condition.clone().into_condition();
    let (partition, sort) = key_attributes(source)?;
    check_key_values(select, partition, sort)?;
    let (partition, sort) = (partition.name.as_str(), sort.map(|sort| sort.name.as_str()));
    check_key_sizes(&select.condition, partition, sort)?;
    let reads = select.condition.reads(partition, sort);
    let reads = reads.map_err(|error| ApiError::validation(error.to_string()))?;
    // A statement without conditions on partition keys reads the entire index, as a Scan does.
    source.refuse_filter(&reads.missing(|name| source.holds(name)))?;
    let is_fetched = source.check_projection(None, select.projection.as_ref())?;
    let collections = reads.collections();
    let forward = order_of(select, partition, sort, collections.as_ref().map(Vec::len))?;
    let mut collections = collections.unwrap_or_default();
    if select.order.iter().any(|(name, forward)| name == partition && !forward) {
        collections.reverse();
    }
    let invalid = || ApiError::validation("NextToken does not match request");
    let owner = format!("{} {fingerprint:016x}", tables::table_arn(store, &source.table.name));
    let start_after = match options.token {
        None => None,
        Some(token) => {
            let key = read_token(token, &owner, store.token_key()).ok_or_else(invalid)?;
            if !collections.is_empty() {
                // The earlier pages have returned all collections before the collection in the token.
                let at =
                    collections.iter().position(|(value, _)| key.get(partition) == Some(value));
                collections.drain(..at.ok_or_else(invalid)?);
            }
            Some(source.start_key(&key).map_err(|_| invalid())?)
        }
    };
    let ranges = collections.iter().map(|(_, expression)| source.range_of(expression));
    let mut ranges = ranges.collect::<Result<Vec<_>, _>>()?.into_iter();
    let range = ranges.next().unwrap_or(ItemRange::Tokens(TokenRange::ALL));
    let request = PageRequest {
        source,
        name: &select.table,
        is_fetched,
        range,
        further: ranges.collect(),
        start_after,
        forward,
        limit: options.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
        filter,
        projection: select.projection.clone(),
        counts_only: false,
        is_consistent: options.is_consistent,
        capacity_detail: options.capacity_detail,
    };
    let token = |last: &Item| write_token(last, &owner, store.token_key());
    answer_statement_page(store, &*store.view(), &request, token).await
}

/// Returns the partition key and the sort key of the source that a statement reads. As in DynamoDB,
/// a statement cannot read an index whose key has several attributes.
fn key_attributes(source: Source<'_>) -> Result<(&KeyAttribute, Option<&KeyAttribute>), ApiError> {
    let (partition, sort) = match source.index {
        None => (Some(&source.table.key_schema.partition), source.table.key_schema.sort.as_ref()),
        Some(index) => {
            let schema = &index.definition.key_schema;
            if schema.has_several_attributes() {
                return Err(ApiError::validation(SEVERAL_KEY_ATTRIBUTES));
            }
            (schema.partition.first(), schema.sort.first())
        }
    };
    let partition = partition.ok_or_else(|| ApiError::defect("an index has no partition key"))?;
    Ok((partition, sort))
}

/// Checks that every value that is compared with a key attribute has the attribute's type.
fn check_key_values(
    select: &Select,
    partition: &KeyAttribute,
    sort: Option<&KeyAttribute>,
) -> Result<(), ApiError> {
    let sort_name = sort.map(|sort| sort.name.as_str());
    for (name, value) in select.condition.key_values(&partition.name, sort_name) {
        let attribute = sort.filter(|sort| sort.name == name).unwrap_or(partition);
        let found = value.attribute_type();
        let scalars = [AttributeType::S, AttributeType::N, AttributeType::B];
        if !scalars.contains(&found) {
            return Err(ApiError::validation(format!(
                "Key value must be of type S, N, or B. Key name: {name}, Key type: {}",
                found.descriptor()
            )));
        }
        if found != attribute.attribute_type.attribute_type() {
            return Err(ApiError::validation(format!(
                "Key attribute's data type should match its data type in table's schema: Key {name}"
            )));
        }
    }
    Ok(())
}

/// Returns whether the collections are read forward. `collections` is the number of partition keys
/// that the conditions select. `ORDER BY` must name key attributes, and is allowed only if the
/// conditions select partition keys.
fn order_of(
    select: &Select,
    partition: &str,
    sort: Option<&str>,
    collections: Option<usize>,
) -> Result<bool, ApiError> {
    if select.order.is_empty() {
        return Ok(true);
    }
    if select.condition.is_empty() {
        return Err(ApiError::validation(
            "Must have WHERE clause in the statement when using ORDER BY clause.",
        ));
    }
    let is_key = |name: &str| name == partition || sort == Some(name);
    if let Some((name, _)) = select.order.iter().find(|(name, _)| !is_key(name)) {
        return Err(ApiError::validation(format!(
            "Attribute {name} in ORDER BY clause must be part of the primary key"
        )));
    }
    match collections {
        None => {
            return Err(ApiError::validation(
                "Must have at least one non-optional hash key condition in WHERE clause when using ORDER BY clause.",
            ));
        }
        Some(2..) if select.order.iter().all(|(name, _)| name != partition) => {
            return Err(ApiError::validation(
                "Must have hash key in ORDER BY clause when more than one hash key condition specified in WHERE clause.",
            ));
        }
        Some(_) => {}
    }
    // If `ORDER BY` does not name the sort key, DynamoDB reads backwards.
    Ok(select
        .order
        .iter()
        .find(|(name, _)| sort == Some(name))
        .is_some_and(|(_, forward)| *forward))
}

/// Finds the table or index that a statement reads. The errors have DynamoDB's messages for
/// statements.
fn find_source<'t>(
    table: &'t partition::Table,
    select: &Select,
    is_consistent: bool,
) -> Result<Source<'t>, ApiError> {
    if let Some(name) = &select.index {
        let index = table
            .index(name)
            .filter(|index| index.is_maintained())
            .ok_or_else(|| ApiError::validation("The table does not have the specified index"))?;
        if is_consistent && index.definition.kind == IndexKind::Global {
            return Err(ApiError::validation(
                "Strongly consistent read is not supported on Global Secondary Indexes",
            ));
        }
    }
    Source::find(table, select.index.as_deref(), is_consistent)
}

/// Returns the token for the next page: the last key that was read, and a MAC with the store's key.
/// The MAC also covers the statement and the table's ARN. Therefore a client cannot forge a token, or
/// use it for another statement or for a table of the same name in another account.
fn write_token(last: &Item, owner: &str, token_key: &TokenKey) -> String {
    let mut key = String::new();
    json::write_item(&mut key, last);
    let mac = token_key.mac(KIND, owner, key.as_bytes());
    mac.into_iter().chain(key.bytes()).map(|byte| format!("{byte:02x}")).collect()
}

fn read_token(token: &str, owner: &str, token_key: &TokenKey) -> Option<Item> {
    let bytes = decode_hexadecimal(token)?;
    let (mac, key) = bytes.split_first_chunk::<MAC_BYTES>()?;
    if !token_key.verify(KIND, owner, key, mac) {
        return None;
    }
    json::item_from_str(std::str::from_utf8(key).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_only_for_its_statement_and_store() {
        let (item, token_key) = (Item::new().with("a", "b"), TokenKey::new([1; 32]));
        let token = write_token(&item, "a 7", &token_key);
        assert_eq!(read_token(&token, "a 7", &token_key), Some(item.clone()));
        assert_eq!(read_token(&token, "a 8", &token_key), None, "of another statement");
        assert_eq!(read_token(&token, "a 7", &TokenKey::new([2; 32])), None, "of another store");
        let other = write_token(&Item::new().with("a", "c"), "a 7", &token_key);
        let (mac, key) = (&token[..2 * MAC_BYTES], &other[2 * MAC_BYTES..]);
        assert_eq!(read_token(&format!("{mac}{key}"), "a 7", &token_key), None, "with another key");
        for text in ["", "00ff", "x", &token[1..], &format!("{token}00")] {
            assert_eq!(read_token(text, "a 7", &token_key), None, "{text}");
        }
    }
}
