//! `Scan`: returns the items of a table, an index or a segment, in the order of their tokens.
//!
//! `page` reads pages and writes responses; this file decides which range of tokens is read.

use model::Item;
use model::limits::SCAN_SEGMENTS_MAX;
use partition::{IndexKey, ItemRange, TokenRange};

use super::constraints::Constraints;
use super::error::ApiError;
use super::expressions::{self, check_combination};
use super::index_choice::Source;
use super::legacy::{ConditionsParameters, OperatorWords};
use super::page::{
    PageOperation, PageParameters, STARTING_KEY_INVALID, answer_page, starting_key_invalid,
};
use super::page_request::PageRequest;
use super::parameters::Parameters;
use super::tables;
use super::wording::Wording;
use crate::store::Store;

const LEGACY: [&str; 3] = ["AttributesToGet", "ScanFilter", "ConditionalOperator"];

/// A segment of a parallel scan: its number and the number of segments.
type Segment = (u32, u32);

pub(super) async fn scan(store: &Store, parameters: Parameters<'_>) -> Result<String, ApiError> {
    let mut shared = PageParameters::read(parameters, PageOperation::Scan)?;
    let scan_filter = ConditionsParameters::scan_filter(parameters)?;
    let segment = parameters.integer("Segment")?;
    let total = parameters.integer("TotalSegments")?;
    let mut constraints = Constraints::new();
    shared.constrain(&mut constraints);
    constraints.range("totalSegments", total, 1, i64::from(SCAN_SEGMENTS_MAX));
    constraints.range("segment", segment, 0, i64::from(SCAN_SEGMENTS_MAX) - 1);
    scan_filter.constrain(&mut constraints, OperatorWords::Named);
    constraints.finish()?;
    let Some(name) = shared.table else {
        return Err(ApiError::resource_not_found());
    };

    check_combination(
        parameters,
        &["ProjectionExpression", "FilterExpression"],
        &LEGACY,
        Wording::Older,
    )?;
    // DynamoDB checks the legacy parameters in this order, before any expression.
    let to_get = shared.to_get.projection()?;
    let is_joined = scan_filter.check_joined();
    let scan_filter = scan_filter.into_condition()?;
    is_joined?;
    let start_key = shared.take_start_key()?;
    let segment = check_segment(segment, total)?;
    shared.check_select()?;
    let (limit, counts_only, capacity_detail) =
        (shared.limit(), shared.counts_only(), shared.capacity_detail());
    let is_consistent = shared.is_consistent;
    let (index, select) = (shared.index, shared.select());
    let mut placeholders = shared.substitutions.into_placeholders_of_scan()?;
    let filter = expressions::filter(shared.filter, &mut placeholders, Wording::Older)?;
    let projection = expressions::projection(shared.projection, &mut placeholders)?;
    placeholders.check_all_used()?;
    let (filter, projection) = (filter.or(scan_filter), projection.or(to_get));

    let table = tables::find_for_items(store, name)?;
    let source = Source::find(&table, index, is_consistent)?;
    let is_fetched = source.check_projection(select, projection.as_ref())?;
    let tokens = segment.map_or(TokenRange::ALL, |(n, total)| TokenRange::segment(n, total));
    let start_after =
        start_key.map(|key| start_after(&key, source, tokens, segment)).transpose()?;
    expressions::check_projection_leaves_keys(projection.as_ref(), &table)?;
    expressions::check_filter_enters_no_key(filter.as_ref(), &table)?;
    let request = PageRequest {
        source,
        name,
        is_fetched,
        range: ItemRange::Tokens(tokens),
        further: Vec::new(),
        start_after,
        forward: true,
        limit,
        filter,
        projection,
        counts_only,
        is_consistent,
        capacity_detail,
    };
    answer_page(store, &*store.view(), &request).await
}

/// Checks that `Segment` and `TotalSegments` are both present or both absent.
fn check_segment(segment: Option<i64>, total: Option<i64>) -> Result<Option<Segment>, ApiError> {
    match (segment, total) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(ApiError::validation(
            "The TotalSegments parameter is required but was not present in the request when Segment parameter is present",
        )),
        (None, Some(_)) => Err(ApiError::validation(
            "The Segment parameter is required but was not present in the request when parameter TotalSegments is present",
        )),
        (Some(segment), Some(total)) if segment >= total => Err(ApiError::validation(format!(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: {segment} is not less than TotalSegments: {total}"
        ))),
        (Some(segment), Some(total)) => {
            // The conversion never fails, because the constraints have checked the range of both numbers.
            let number = |value: i64| u32::try_from(value).unwrap_or(0);
            Ok(Some((number(segment), number(total))))
        }
    }
}

/// Returns the exclusive start key of a page, which must be in this segment.
fn start_after(
    key: &Item,
    source: Source<'_>,
    tokens: TokenRange,
    segment: Option<Segment>,
) -> Result<IndexKey, ApiError> {
    // The attributes of the exclusive start key must be the key attributes of the table and the
    // index. Otherwise DynamoDB returns an error without a reason.
    if source.index.is_some() && !source.names_start_key(key) {
        return Err(ApiError::validation(STARTING_KEY_INVALID));
    }
    let key = source.start_key(key).map_err(|error| starting_key_invalid(&error.to_string()))?;
    match segment {
        Some((number, total)) if !(tokens.first..=tokens.last).contains(&key.index.token()) => {
            Err(starting_key_invalid(&format!(
                "Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct Segment. TotalSegments: {total} Segment: {number}"
            )))
        }
        _ => Ok(key),
    }
}
