//! `Query`: returns the items with one partition key, in the order of their sort keys.
//!
//! `page` reads pages and writes responses; this file decides which items are selected.

use expression::{Condition, KeyExpression, ParsedKeyExpression, Projection, value_text};
use model::{Item, KeyValue};
use partition::{IndexKey, ItemRange};

use super::constraints::Constraints;
use super::error::ApiError;
use super::expressions::{
    self, check_combination, check_filter_leaves_keys, check_query_filter_leaves_keys,
};
use super::index_choice::Source;
use super::legacy::{ConditionsParameters, OperatorWords, check_key_conditions};
use super::page::{PageOperation, PageParameters, STARTING_KEY_INVALID, answer_page};
use super::page_request::PageRequest;
use super::parameters::Parameters;
use super::tables;
use super::wording::Wording;
use crate::store::Store;

const LEGACY: [&str; 4] =
    ["AttributesToGet", "QueryFilter", "ConditionalOperator", "KeyConditions"];

pub(super) async fn query(store: &Store, parameters: Parameters<'_>) -> Result<String, ApiError> {
    let mut shared = PageParameters::read(parameters, PageOperation::Query)?;
    let key_condition = parameters.string("KeyConditionExpression")?;
    let key_conditions = ConditionsParameters::key_conditions(parameters)?;
    let query_filter = ConditionsParameters::query_filter(parameters)?;
    let forward = parameters.boolean("ScanIndexForward")?.unwrap_or(true);
    query_filter.check_operator()?;
    let mut constraints = Constraints::new();
    shared.constrain(&mut constraints);
    key_conditions.constrain(&mut constraints, OperatorWords::Named);
    query_filter.constrain(&mut constraints, OperatorWords::Named);
    constraints.finish()?;
    let Some(name) = shared.table else {
        return Err(ApiError::resource_not_found());
    };

    let kinds = ["ProjectionExpression", "FilterExpression", "KeyConditionExpression"];
    check_combination(parameters, &kinds, &LEGACY, Wording::Current)?;
    query_filter.check_joined()?;
    let start_key = shared.take_start_key()?;
    check_some_key_condition(key_condition.is_some() || key_conditions.is_given())?;
    shared.check_select()?;
    let (limit, counts_only, capacity_detail) =
        (shared.limit(), shared.counts_only(), shared.capacity_detail());
    let (is_consistent, index, select) = (shared.is_consistent, shared.index, shared.select());
    let mut placeholders = shared.substitutions.into_placeholders()?;
    let key_expression = key_condition
        .map(|text| ParsedKeyExpression::parse(text, &mut placeholders))
        .transpose()?;
    let filter = expressions::filter(shared.filter, &mut placeholders, Wording::Current)?;
    let projection = expressions::projection(shared.projection, &mut placeholders)?;
    placeholders.check_all_used()?;
    let conditions = match key_expression {
        Some(parsed) => parsed.into_conditions(&mut placeholders)?,
        None => key_conditions.into_key_expression(index.is_some())?,
    };
    let filtered: Vec<&str> = query_filter.attributes().collect();
    let legacy_filter = query_filter.into_condition()?;
    let projection =
        projection.map_or_else(|| shared.to_get.into_projection(), |found| Ok(Some(found)))?;

    let table = tables::find_for_items(store, name)?;
    let source = Source::find(&table, index, is_consistent)?;
    if key_condition.is_none() {
        check_key_conditions(conditions.attributes().count(), source.key_attribute_count())?;
    }
    let (range, start_after) = range_from(start_key.as_ref(), source, &conditions)?;
    check_paths(projection.as_ref(), filter.as_ref(), source)?;
    check_query_filter_leaves_keys(filtered.into_iter(), source)?;
    let filter = filter.or(legacy_filter);
    source.check_filter(filter.as_ref())?;
    let is_fetched = source.check_projection(select, projection.as_ref())?;
    expressions::check_filter_enters_no_key(filter.as_ref(), &table)?;
    let request = PageRequest {
        source,
        name,
        is_fetched,
        range,
        further: Vec::new(),
        start_after,
        forward,
        limit,
        filter,
        projection,
        counts_only,
        is_consistent,
        capacity_detail,
    };
    answer_page(store, &*store.view(), &request).await
}

/// Checks that no expression uses a key attribute in a position in which key attributes are not
/// allowed.
fn check_paths(
    projection: Option<&Projection>,
    filter: Option<&Condition>,
    source: Source<'_>,
) -> Result<(), ApiError> {
    expressions::check_projection_leaves_keys(projection, source.table)?;
    check_filter_leaves_keys(filter, source)
}

/// Returns the range that the Query selects, and the page's exclusive start key in this range.
fn range_from(
    start_key: Option<&Item>,
    source: Source<'_>,
    conditions: &KeyExpression,
) -> Result<(ItemRange, Option<IndexKey>), ApiError> {
    let place = start_key.map(|key| place_of(key, source, conditions)).transpose()?;
    let range = source.range_of(conditions)?;
    let start_after = place.map(|place| within(place, &range)).transpose()?;
    Ok((range, start_after))
}

fn check_some_key_condition(is_given: bool) -> Result<(), ApiError> {
    if is_given {
        return Ok(());
    }
    Err(ApiError::validation(
        "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.",
    ))
}

/// Returns the position of an exclusive start key. DynamoDB first checks its partition key and the
/// partition key of the conditions, as public recordings of its responses show.
fn place_of(
    key: &Item,
    source: Source<'_>,
    conditions: &KeyExpression,
) -> Result<IndexKey, ApiError> {
    let invalid = || ApiError::validation(STARTING_KEY_INVALID);
    if !source.begins_start_key(key) {
        return Err(invalid());
    }
    if !source.can_continue_query() {
        let attributes = key.iter();
        let attributes: Vec<String> = attributes
            .map(|(name, value)| format!("{name}=AttributeValue: {}", value_text(value)))
            .collect();
        return Err(ApiError::validation(format!(
            "The provided exclusive start key is invalid: ExclusiveStartKey: {{{}}}",
            attributes.join(", ")
        )));
    }
    conditions.check_partition(&source.key_schema())?;
    source.start_key(key).map_err(|_| invalid())
}

/// Checks that an exclusive start key is in the range of the Query, and returns it. DynamoDB checks
/// the conditions from left to right, as public recordings of its responses show.
fn within(key: IndexKey, range: &ItemRange) -> Result<IndexKey, ApiError> {
    let one;
    let (partition, equal, sort) = match range {
        ItemRange::Collection { partition, sort } => {
            one = [partition.clone()];
            (one.as_slice(), [].as_slice(), sort)
        }
        ItemRange::Entries(condition) => {
            (condition.partition.as_slice(), condition.equal.as_slice(), &condition.sort)
        }
        ItemRange::Tokens(_) => return Ok(key),
    };
    let at_most_one =
        || ApiError::validation("The query can return at most one row and cannot be restarted");
    let differs = |(left, right): (&KeyValue, &KeyValue)| left != right;
    let leading = partition.len().saturating_sub(1);
    if key.index.partition.iter().zip(partition).take(leading).any(differs) {
        return Err(at_most_one());
    }
    let last = key.index.sort.get(equal.len());
    let is_outside = key.index.sort.iter().zip(equal).any(differs)
        || sort.as_ref().zip(last).is_some_and(|(sort, value)| !sort.matches(value));
    if is_outside {
        return Err(ApiError::validation(
            "The provided starting key does not match the range key predicate",
        ));
    }
    if key.index.partition.last() == partition.last() {
        return Ok(key);
    }
    if sort.is_some() {
        return Err(at_most_one());
    }
    Err(ApiError::validation(
        "The provided starting key is outside query boundaries based on provided conditions",
    ))
}
