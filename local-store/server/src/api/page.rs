//! One page of a Query or a Scan: what they have in common from parameters to answer.
//!
//! Which items are read, and from where, is decided by the two operations.

use std::ops::ControlFlow;

use expression::{Condition, Projection};
use model::limits::PAGE_BYTES_MAX;
use model::{Item, json};
use partition::{IndexKey, ItemRange, ReadError, View, read_index_entries, read_item, read_items};

use super::answer::{begin_member, item_member, number_member, text_member};
use super::capacity::{Capacity, CapacityDetail, Consumption};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY, SELECT};
use super::error::ApiError;
use super::expressions::Substitutions;
use super::index_choice::Source;
use super::legacy::AttributesToGet;
use super::metering;
use super::parameters::{Checked, Parameters};
use crate::store::Store;

/// The shared parameters, as they were sent.
pub(crate) struct PageParameters<'j> {
    pub(crate) table: Option<&'j str>,
    pub(crate) index: Option<&'j str>,
    pub(crate) start_key: Option<Checked<Item>>,
    pub(crate) filter: Option<&'j str>,
    pub(crate) projection: Option<&'j str>,
    pub(crate) to_get: AttributesToGet<'j>,
    pub(crate) substitutions: Substitutions,
    pub(crate) is_consistent: bool,
    select: Option<&'j str>,
    limit: Option<i64>,
    capacity: Option<&'j str>,
}

impl<'j> PageParameters<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        Ok(Self {
            table: parameters.string("TableName")?,
            index: parameters.string("IndexName")?,
            start_key: parameters.item("ExclusiveStartKey")?,
            filter: parameters.string("FilterExpression")?,
            projection: parameters.string("ProjectionExpression")?,
            to_get: AttributesToGet::read(parameters)?,
            substitutions: Substitutions::read(parameters)?,
            is_consistent: parameters.boolean("ConsistentRead")?.unwrap_or(false),
            select: parameters.string("Select")?,
            limit: parameters.integer("Limit")?,
            capacity: parameters.string("ReturnConsumedCapacity")?,
        })
    }

    /// Adds the shared parameters' failures.
    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        constraints.one_of("select", self.select, SELECT);
        constraints.range("limit", self.limit, 1, i64::from(i32::MAX));
        constraints.one_of("returnConsumedCapacity", self.capacity, RETURN_CONSUMED_CAPACITY);
        constraints.table_name(self.table);
        if let Some(index) = self.index {
            constraints.name("indexName", index);
        }
        self.to_get.constrain(constraints, "attributesToGet");
    }

    /// Takes the starting key, whose values are checked before the table is known.
    pub(crate) fn take_start_key(&mut self) -> Result<Option<Item>, ApiError> {
        self.start_key.take().transpose().map_err(|text| starting_key_invalid(&text))
    }

    /// Checks that `Select` fits what is asked for; `doing` is `Querying` or `Scanning`.
    pub(crate) fn check_select(&self, doing: &str) -> Result<(), ApiError> {
        let projection = match (self.projection.is_some(), self.to_get.is_given()) {
            (true, _) => Some("ProjectionExpression"),
            (false, true) => Some("AttributesToGet"),
            (false, false) => None,
        };
        match (self.select, projection) {
            (Some("ALL_PROJECTED_ATTRIBUTES"), _) if self.index.is_none() => {
                Err(ApiError::invalid_parameter(format!(
                    "ALL_PROJECTED_ATTRIBUTES can be used only when {doing} using an IndexName"
                )))
            }
            (Some("SPECIFIC_ATTRIBUTES"), None) => Err(ApiError::invalid_parameter(
                "Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES",
            )),
            (Some(select), Some(projection)) if select != "SPECIFIC_ATTRIBUTES" => {
                let what = if select == "COUNT" { "only the Count" } else { select };
                Err(ApiError::invalid_parameter(format!(
                    "Cannot specify the {projection} when choosing to get {what}"
                )))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn select(&self) -> Option<&'j str> {
        self.select
    }

    pub(crate) fn shows_all(&self) -> bool {
        self.select == Some("ALL_ATTRIBUTES")
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
    }

    pub(crate) fn counts_only(&self) -> bool {
        self.select == Some("COUNT")
    }

    pub(crate) fn capacity_detail(&self) -> CapacityDetail {
        CapacityDetail::from_parameter(self.capacity)
    }
}

/// A starting key that is no key of the table, in the service's words.
pub(crate) fn starting_key_invalid(reason: &str) -> ApiError {
    ApiError::validation(format!("The provided starting key is invalid: {reason}"))
}

/// What to read and what to keep of it.
pub(crate) struct PageRequest<'r> {
    pub(crate) source: Source<'r>,
    /// Whether each item is fetched from the table, because the index does not hold enough of it.
    pub(crate) is_fetched: bool,
    pub(crate) range: ItemRange,
    pub(crate) start_after: Option<IndexKey>,
    pub(crate) forward: bool,
    /// Items to read at most, at least 1.
    pub(crate) limit: usize,
    pub(crate) filter: Option<Condition>,
    pub(crate) projection: Option<Projection>,
    pub(crate) counts_only: bool,
    /// Whether a fetched item is shown whole. Otherwise it was fetched for the filter or the
    /// projection only, and without a projection what the index holds is shown.
    pub(crate) shows_all: bool,
    pub(crate) is_consistent: bool,
    pub(crate) capacity_detail: CapacityDetail,
}

/// How far a page has got.
#[derive(Default)]
struct Progress {
    count: u64,
    scanned: usize,
    bytes: usize,
    /// Bytes of the items that were fetched from the table; they count for the page, too.
    fetched_bytes: usize,
    /// What fetching them cost.
    fetched: Capacity,
    last_read: Option<Item>,
    is_cut: bool,
}

impl Progress {
    fn is_full(&self) -> bool {
        self.bytes + self.fetched_bytes >= PAGE_BYTES_MAX
    }
}

/// Room for the answer of a small page.
const ANSWER_BYTES_EXPECTED: usize = 4096;

/// Reads a page and writes the whole answer. Limits count what is read, before the filter.
pub(crate) fn answer_page(
    store: &Store,
    view: &dyn View,
    request: &PageRequest<'_>,
) -> Result<String, ApiError> {
    let mut out = String::with_capacity(ANSWER_BYTES_EXPECTED);
    out.push('{');
    if !request.counts_only {
        begin_member(&mut out, "Items");
        out.push('[');
    }
    let mut progress = Progress::default();
    read_page(view, request, &mut progress, &mut out)?;
    if !request.counts_only {
        out.push(']');
    }
    number_member(&mut out, "Count", progress.count);
    number_member(&mut out, "ScannedCount", u64::try_from(progress.scanned).unwrap_or(u64::MAX));
    let capacity = Capacity::of_read(progress.bytes, request.is_consistent);
    let last_read = progress.last_read.as_ref();
    metering::record_page(store, request.source, &request.range, last_read, capacity);
    if let Some(last) = progress.last_read.filter(|_| progress.is_cut) {
        item_member(&mut out, "LastEvaluatedKey", &request.source.key_attributes(last));
    }
    let consumption = match request.source.index {
        None => capacity.into(),
        Some(index) => {
            let mut consumption = Consumption::from(progress.fetched);
            consumption.add(index, capacity);
            consumption
        }
    };
    request.capacity_detail.write_member(&mut out, &request.source.table.name, consumption);
    out.push('}');
    Ok(out)
}

/// Reads a page and writes the answer of a statement: without counts, and with a token.
pub(crate) fn answer_statement_page(
    store: &Store,
    view: &dyn View,
    request: &PageRequest<'_>,
    token: impl FnOnce(&Item) -> String,
) -> Result<String, ApiError> {
    let mut out = String::with_capacity(ANSWER_BYTES_EXPECTED);
    out.push('{');
    begin_member(&mut out, "Items");
    out.push('[');
    let mut progress = Progress::default();
    read_page(view, request, &mut progress, &mut out)?;
    out.push(']');
    let capacity = Capacity::of_read(progress.bytes, request.is_consistent);
    let last_read = progress.last_read.as_ref();
    metering::record_page(store, request.source, &request.range, last_read, capacity);
    if let Some(last) = progress.last_read.take().filter(|_| progress.is_cut) {
        let last = request.source.key_attributes(last);
        text_member(&mut out, "NextToken", &token(&last));
        item_member(&mut out, "LastEvaluatedKey", &last);
    }
    let consumption = consumption(request, &progress, capacity);
    request.capacity_detail.write_member(&mut out, &request.source.table.name, consumption);
    out.push('}');
    Ok(out)
}

fn consumption(request: &PageRequest<'_>, progress: &Progress, capacity: Capacity) -> Consumption {
    match request.source.index {
        None => capacity.into(),
        Some(index) => {
            let mut consumption = Consumption::from(progress.fetched);
            consumption.add(index, capacity);
            consumption
        }
    }
}

fn read_page(
    view: &dyn View,
    request: &PageRequest<'_>,
    progress: &mut Progress,
    out: &mut String,
) -> Result<(), ReadError> {
    let PageRequest { source, range, start_after, forward, .. } = request;
    let table = source.table;
    let Some(index) = source.index else {
        let start_after = start_after.as_ref().map(|place| &place.table);
        return read_items(view, table, range, start_after, *forward, &mut |item| {
            take_item(request, progress, out, item, None)
        });
    };
    let mut failure = None;
    let mut take = |entry: Item| {
        // A page that is full takes no further item, so there is nothing to fetch.
        if !request.is_fetched || progress.is_full() {
            return take_item(request, progress, out, entry, None);
        }
        match fetch(view, request, &entry) {
            Ok(item) => {
                let size = item.as_ref().map_or(0, Item::size);
                let cost = Capacity::of_read(size, request.is_consistent);
                progress.fetched = progress.fetched.plus(cost);
                take_item(request, progress, out, entry, item.as_ref())
            }
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    read_index_entries(
        view,
        table,
        index.number,
        range,
        start_after.as_ref(),
        *forward,
        &mut take,
    )?;
    failure.map_or(Ok(()), Err)
}

/// The whole item of an entry. It is there: the view shows one point in time.
fn fetch(
    view: &dyn View,
    request: &PageRequest<'_>,
    entry: &Item,
) -> Result<Option<Item>, ReadError> {
    let table = request.source.table;
    match table.key_schema.key_of_item(entry) {
        Ok(key) => read_item(view, table, &key),
        Err(error) => Err(ReadError(format!("an index entry without its item's key: {error}"))),
    }
}

fn take_item(
    request: &PageRequest<'_>,
    progress: &mut Progress,
    out: &mut String,
    read: Item,
    fetched: Option<&Item>,
) -> ControlFlow<()> {
    // A page ends with the item that reaches 1 MB, and only when there is another one.
    if progress.is_full() {
        progress.is_cut = true;
        return ControlFlow::Break(());
    }
    progress.bytes += read.size();
    progress.fetched_bytes += fetched.map_or(0, Item::size);
    let item = fetched.unwrap_or(&read);
    progress.scanned += 1;
    if request.filter.as_ref().is_none_or(|filter| filter.evaluate(item)) {
        if !request.counts_only {
            if progress.count > 0 {
                out.push(',');
            }
            match &request.projection {
                Some(projection) => json::write_item(out, &projection.apply(item)),
                None if request.shows_all => json::write_item(out, item),
                None => json::write_item(out, &read),
            }
        }
        progress.count += 1;
    }
    progress.last_read = Some(read);
    // A page that reaches its limit gives a key to go on from even at the end of the range.
    progress.is_cut = progress.scanned >= request.limit;
    if progress.is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
