//! One page of a Query or a Scan: the code that both operations share, from parameters to response.
//!
//! The file of each operation decides which items are read, and where the page starts.

use std::ops::ControlFlow;
use std::{iter, mem};

use model::limits::PAGE_BYTES_MAX;
use model::{Item, encoding, json};
use partition::{
    IndexKey, ItemRange, ReadError, View, read_encoded_entries, read_encoded_items, read_item,
};

use super::answer::{begin_member, item_member, number_member, text_member};
use super::capacity::{Capacity, CapacityDetail, Consumption};
use super::constraints::{Constraints, RETURN_CONSUMED_CAPACITY, SELECT};
use super::error::ApiError;
use super::expressions::Substitutions;
use super::legacy::AttributesToGet;
use super::metering::{self, Admitted};
use super::page_request::PageRequest;
use super::parameters::Parameters;
use super::wording::{Checked, Wording};
use crate::store::Store;
use crate::store::long_reads::{SHORT_READ_BYTES, SHORT_READ_ITEMS};

/// The error for a `Select` of specific attributes that names no attributes.
const NOTHING_SPECIFIED: &str = "Must specify the AttributesToGet or ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES";

/// The operation of a page. Some error messages depend on the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageOperation {
    Query,
    Scan,
}

impl PageOperation {
    pub(crate) fn words(self) -> Wording {
        match self {
            Self::Query => Wording::Current,
            Self::Scan => Wording::Older,
        }
    }
}

/// The shared parameters, as they were sent.
pub(crate) struct PageParameters<'j> {
    operation: PageOperation,
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
    pub(crate) fn read(
        parameters: Parameters<'j>,
        operation: PageOperation,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            operation,
            table: parameters.string("TableName")?,
            index: parameters.string("IndexName")?,
            start_key: parameters.item("ExclusiveStartKey")?,
            filter: parameters.string("FilterExpression")?,
            projection: parameters.string("ProjectionExpression")?,
            to_get: AttributesToGet::read(parameters)?,
            substitutions: Substitutions::read(parameters, operation.words())?,
            is_consistent: parameters.boolean("ConsistentRead")?.unwrap_or(false),
            select: parameters.string("Select")?,
            limit: parameters.integer("Limit")?,
            capacity: parameters.string("ReturnConsumedCapacity")?,
        })
    }

    /// Adds the failures of the shared parameters.
    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        constraints.one_of("select", self.select, SELECT);
        match self.limit {
            Some(..=0) if self.operation == PageOperation::Query => constraints.below("Limit", 1),
            limit => constraints.range("limit", limit, 1, i64::from(i32::MAX)),
        }
        constraints.one_of("returnConsumedCapacity", self.capacity, RETURN_CONSUMED_CAPACITY);
        constraints.table_name(self.table);
        if let Some(index) = self.index {
            constraints.name("indexName", index);
        }
        self.to_get.constrain(constraints, "attributesToGet");
    }

    /// Takes the exclusive start key out of the request and checks its values. Its attributes are
    /// checked later, because that check depends on the table.
    pub(crate) fn take_start_key(&mut self) -> Result<Option<Item>, ApiError> {
        let words = self.operation.words();
        self.start_key.take().transpose().map_err(|wrong| match words {
            Wording::Current => wrong.current(),
            Wording::Older if wrong.stands_alone() => wrong.older(),
            Wording::Older => starting_key_invalid(wrong.older().message()),
        })
    }

    /// Checks that `Select` is consistent with the other parameters. For a Scan, DynamoDB uses the
    /// error messages of a Query.
    pub(crate) fn check_select(&self) -> Result<(), ApiError> {
        let projection = match (self.projection.is_some(), self.to_get.is_given()) {
            (true, _) => Some("ProjectionExpression"),
            (false, true) => Some("AttributesToGet"),
            (false, false) => None,
        };
        let refusal = match (self.select, projection) {
            (Some("ALL_PROJECTED_ATTRIBUTES"), None) if self.index.is_none() => {
                "ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName"
                    .to_owned()
            }
            (Some("SPECIFIC_ATTRIBUTES"), None) => NOTHING_SPECIFIED.to_owned(),
            (Some(select), Some(projection)) if select != "SPECIFIC_ATTRIBUTES" => {
                let what = if select == "COUNT" { "only the Count" } else { select };
                format!("Cannot specify the {projection} when choosing to get {what}")
            }
            _ => return Ok(()),
        };
        Err(ApiError::validation(format!("1 validation error detected: {refusal}")))
    }

    pub(crate) fn select(&self) -> Option<&'j str> {
        self.select
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

/// The error for an invalid exclusive start key. A reason may be appended.
pub(crate) const STARTING_KEY_INVALID: &str = "The provided starting key is invalid";

/// Returns the error for an exclusive start key that is not a key of the table.
pub(crate) fn starting_key_invalid(reason: &str) -> ApiError {
    ApiError::validation(format!("{STARTING_KEY_INVALID}: {reason}"))
}

/// The progress of reading a page.
#[derive(Default)]
struct Progress {
    count: u64,
    scanned: usize,
    bytes: usize,
    /// The number of bytes of the items that were fetched from the table. These bytes count towards
    /// the size limit of the page.
    fetched_bytes: usize,
    /// The capacity that fetching items from the table consumed.
    fetched: Capacity,
    /// The stored bytes of the last item that was read; empty if no item was read yet.
    last_read: Vec<u8>,
    is_cut: bool,
    /// The index of the current range: 0 for the first range of the request, and then the ranges of
    /// `further`.
    range: usize,
    /// Whether this is a short read, which pauses at its limit and continues as a long read.
    is_short: bool,
    /// Whether the read has paused.
    is_paused: bool,
    /// The error of a failed read.
    failure: Option<ReadError>,
}

impl Progress {
    fn is_full(&self) -> bool {
        self.bytes + self.fetched_bytes >= PAGE_BYTES_MAX
    }

    /// Returns whether a short read has reached its limit and must pause.
    fn is_to_pause(&self) -> bool {
        let read = self.bytes + self.fetched_bytes;
        self.is_short && (read >= SHORT_READ_BYTES || self.scanned >= SHORT_READ_ITEMS)
    }

    /// Returns the last item that was read.
    fn last_item(&self) -> Result<Option<Item>, ReadError> {
        if self.last_read.is_empty() {
            return Ok(None);
        }
        decode(&self.last_read).map(Some)
    }
}

/// The initial capacity of the response buffer in bytes, enough for a small page.
const ANSWER_BYTES_EXPECTED: usize = 4096;

/// Reads a page and writes the response. `Limit` counts items before the filter is applied.
pub(crate) async fn answer_page(
    store: &Store,
    view: &(dyn View + Send + Sync),
    request: &PageRequest<'_>,
) -> Result<String, ApiError> {
    let admitted = metering::admit_page(store, request)?;
    let mut out = String::with_capacity(ANSWER_BYTES_EXPECTED);
    out.push('{');
    if !request.counts_only {
        begin_member(&mut out, "Items");
        out.push('[');
    }
    let mut progress = Progress::default();
    read_page(store, view, request, &mut progress, &mut out).await?;
    if !request.counts_only {
        out.push(']');
    }
    number_member(&mut out, "Count", progress.count);
    number_member(&mut out, "ScannedCount", u64::try_from(progress.scanned).unwrap_or(u64::MAX));
    let capacity = Capacity::of_read(progress.bytes, request.is_consistent);
    let last = last_of_page(store, request, &progress, capacity, admitted)?;
    if let Some(last) = last {
        item_member(&mut out, "LastEvaluatedKey", &last);
    }
    let consumption = consumption(request, &progress, capacity);
    request.capacity_detail.write_member(&mut out, request.name, consumption);
    out.push('}');
    Ok(out)
}

/// Reads a page and writes the response of a statement, which has no counts, and a token for the next
/// page.
pub(crate) async fn answer_statement_page(
    store: &Store,
    view: &(dyn View + Send + Sync),
    request: &PageRequest<'_>,
    token: impl FnOnce(&Item) -> String,
) -> Result<String, ApiError> {
    let admitted = metering::admit_page(store, request)?;
    let mut out = String::with_capacity(ANSWER_BYTES_EXPECTED);
    out.push('{');
    begin_member(&mut out, "Items");
    out.push('[');
    let mut progress = Progress::default();
    read_page(store, view, request, &mut progress, &mut out).await?;
    out.push(']');
    let capacity = Capacity::of_read(progress.bytes, request.is_consistent);
    let last = last_of_page(store, request, &progress, capacity, admitted)?;
    if let Some(last) = last {
        text_member(&mut out, "NextToken", &token(&last));
        item_member(&mut out, "LastEvaluatedKey", &last);
    }
    let consumption = consumption(request, &progress, capacity);
    request.capacity_detail.write_member(&mut out, request.name, consumption);
    out.push('}');
    Ok(out)
}

/// Records the capacity that the page consumed. Returns the key for the next page; `None` if this
/// is the last page.
fn last_of_page(
    store: &Store,
    request: &PageRequest<'_>,
    progress: &Progress,
    capacity: Capacity,
    admitted: Admitted,
) -> Result<Option<Item>, ReadError> {
    let is_scan = matches!(request.range, ItemRange::Tokens(_));
    let last = if progress.is_cut || is_scan { progress.last_item()? } else { None };
    metering::record_page(store, request, last.as_ref(), capacity, admitted);
    let has_next = progress.is_cut && !request.reads_one_item();
    Ok(last.filter(|_| has_next).map(|last| request.source.key_attributes(last)))
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

/// Reads a page as a short read. If the short read pauses, reads the rest as a long read.
async fn read_page(
    store: &Store,
    view: &(dyn View + Send + Sync),
    request: &PageRequest<'_>,
    progress: &mut Progress,
    out: &mut String,
) -> Result<(), ReadError> {
    progress.is_short = true;
    read_ranges(view, request, request.start_after.as_ref(), progress, out)?;
    progress.is_short = false;
    if !mem::take(&mut progress.is_paused) {
        return Ok(());
    }
    let last = progress.last_item()?.map(|last| request.source.key_attributes(last));
    let place = last.map(|last| request.source.start_key(&last)).transpose();
    let place =
        place.map_err(|error| ReadError(format!("a stored item lacks its key: {error}")))?;
    let read = || read_ranges(view, request, place.as_ref(), progress, out);
    store.long_reads().run(read).await
}

/// Continues a page at a position in its current range, and then reads the later ranges.
fn read_ranges(
    view: &dyn View,
    request: &PageRequest<'_>,
    mut start_after: Option<&IndexKey>,
    progress: &mut Progress,
    out: &mut String,
) -> Result<(), ReadError> {
    let ranges = iter::once(&request.range).chain(&request.further).enumerate();
    for (number, range) in ranges.skip(progress.range) {
        progress.range = number;
        read_range(view, request, range, start_after.take(), progress, out)?;
        if progress.is_cut || progress.is_paused {
            break;
        }
    }
    Ok(())
}

fn read_range(
    view: &dyn View,
    request: &PageRequest<'_>,
    range: &ItemRange,
    start_after: Option<&IndexKey>,
    progress: &mut Progress,
    out: &mut String,
) -> Result<(), ReadError> {
    let PageRequest { source, forward, .. } = request;
    let table = source.table;
    let mut take = |bytes: &[u8]| match take_item(view, request, progress, out, bytes) {
        Ok(flow) => flow,
        Err(error) => {
            progress.failure = Some(error);
            ControlFlow::Break(())
        }
    };
    match source.index {
        None => {
            let start_after = start_after.map(|place| &place.table);
            read_encoded_items(view, table, range, start_after, *forward, &mut take)?;
        }
        Some(index) => {
            let number = index.number;
            read_encoded_entries(view, table, number, range, start_after, *forward, &mut take)?;
        }
    }
    progress.failure.take().map_or(Ok(()), Err)
}

/// Fetches the complete item of an index entry. The item exists, because the view is a snapshot.
fn fetch(
    view: &dyn View,
    request: &PageRequest<'_>,
    entry: &Item,
) -> Result<Option<Item>, ReadError> {
    let table = request.source.table;
    match table.key_schema.key_of_item(entry) {
        Ok(key) => read_item(view, table, &key),
        Err(error) => Err(ReadError(format!("an index entry lacks its item's key: {error}"))),
    }
}

fn decode(bytes: &[u8]) -> Result<Item, ReadError> {
    encoding::decode_item(bytes).map_err(|error| ReadError(error.to_string()))
}

/// Processes the stored bytes of one item or entry. A page ends with the item that reaches 1 MB.
/// There is a next page only if another item follows.
fn take_item(
    view: &dyn View,
    request: &PageRequest<'_>,
    progress: &mut Progress,
    out: &mut String,
    bytes: &[u8],
) -> Result<ControlFlow<()>, ReadError> {
    if progress.is_full() {
        progress.is_cut = true;
        return Ok(ControlFlow::Break(()));
    }
    if progress.is_to_pause() {
        progress.is_paused = true;
        return Ok(ControlFlow::Break(()));
    }
    let is_shown_as_stored = request.filter.is_none()
        && request.projection.is_none()
        && !request.is_fetched
        && !request.counts_only;
    if is_shown_as_stored {
        if progress.count > 0 {
            out.push(',');
        }
        let size = json::write_encoded_item(out, bytes);
        progress.bytes += size.map_err(|error| ReadError(error.to_string()))?;
        progress.count += 1;
    } else {
        take_part(view, request, progress, out, &decode(bytes)?)?;
    }
    progress.scanned += 1;
    progress.last_read.clear();
    progress.last_read.extend_from_slice(bytes);
    // Like DynamoDB, a page that reaches `Limit` returns a key for the next page even at the end of the
    // range.
    progress.is_cut = progress.scanned >= request.limit;
    Ok(if progress.is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// Processes an item that must be filtered, projected or fetched from the table.
fn take_part(
    view: &dyn View,
    request: &PageRequest<'_>,
    progress: &mut Progress,
    out: &mut String,
    read: &Item,
) -> Result<(), ReadError> {
    let fetched = if request.is_fetched { fetch(view, request, read)? } else { None };
    if request.is_fetched {
        let size = fetched.as_ref().map_or(0, Item::size);
        let cost = Capacity::of_read(size, request.is_consistent);
        progress.fetched = progress.fetched.plus(cost);
        progress.fetched_bytes += size;
    }
    progress.bytes += read.size();
    // As in DynamoDB, the filter is evaluated on the attributes that the index projects, even if the
    // complete item was fetched for the response.
    if request.filter.as_ref().is_some_and(|filter| !filter.evaluate(read)) {
        return Ok(());
    }
    if !request.counts_only {
        if progress.count > 0 {
            out.push(',');
        }
        let item = fetched.as_ref().unwrap_or(read);
        match &request.projection {
            Some(projection) => json::write_item(out, &projection.apply(item)),
            None => json::write_item(out, item),
        }
    }
    progress.count += 1;
    Ok(())
}
