//! The trial of a model on a store: the requests to send, and the evaluation of their responses.
//!
//! The caller sends the requests. The requests create the tables, put the example items, and run
//! the access patterns in the order of the file, as `awslabs.dynamodb-mcp-server` does.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::command::{Command, Operation};
use crate::data_model::{DataModel, Place, item_json};

/// The maximum number of pages of one access pattern. The file has at most 1 MB of example items,
/// so only a tiny page size leads to many pages.
const PAGES_MAX: usize = 1_000;

/// A request to the store: an operation of the API and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The name of the operation.
    pub operation: &'static str,
    /// The parameters.
    pub parameters: Value,
}

/// Returns the requests that create the tables and put the example items, each with the part of the
/// model that it is for.
#[must_use]
pub fn preparation(model: &DataModel) -> Vec<(Place, Request)> {
    let tables = model.tables.iter().enumerate().map(|(at, table)| {
        let parameters = json!(table);
        (Place::Table(at), Request { operation: "CreateTable", parameters })
    });
    let mut requests: Vec<_> = tables.collect();
    for (table, items) in &model.items {
        for (at, item) in items.iter().enumerate() {
            let parameters = json!({"TableName": table, "Item": item_json(item)});
            let request = Request { operation: "PutItem", parameters };
            requests.push((Place::Item(table.clone(), at), request));
        }
    }
    requests
}

/// Returns the request that counts the items of a table, beginning after a key.
#[must_use]
pub fn count(table: &str, after: Option<&Value>) -> Request {
    let mut parameters = json!({"TableName": table, "Select": "COUNT", "ConsistentRead": true});
    if let Some((after, members)) = after.zip(parameters.as_object_mut()) {
        members.insert("ExclusiveStartKey".to_owned(), after.clone());
    }
    Request { operation: "Scan", parameters }
}

/// The result of an access pattern.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The response with the items of all pages; the error if the store rejected the request.
    pub answer: Value,
    /// The error message, if the store rejected the request.
    pub refusal: Option<String>,
    /// The number of items that were read.
    pub read: u64,
    /// The number of items that were returned.
    pub returned: u64,
    /// The consumed capacity of each table and index.
    pub consumed: Vec<Consumed>,
    /// The number of items that the pattern added to each table.
    pub created: BTreeMap<String, i64>,
}

/// The capacity that a request consumed in a table or an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Consumed {
    /// The table.
    pub table: String,
    /// The index; `None` for the table itself.
    pub index: Option<String>,
    /// The read units.
    pub reads: f64,
    /// The write units.
    pub writes: f64,
}

impl Outcome {
    /// Returns the read units and the write units.
    #[must_use]
    pub fn units(&self) -> (f64, f64) {
        let sum = |units: fn(&Consumed) -> f64| self.consumed.iter().map(units).sum();
        (sum(|consumed| consumed.reads), sum(|consumed| consumed.writes))
    }
}

/// A running access pattern, which is read page by page.
#[derive(Clone, Debug)]
pub struct Run<'c> {
    command: &'c Command,
    outcome: Outcome,
    next: Option<Map<String, Value>>,
    pages: usize,
}

impl<'c> Run<'c> {
    /// Starts an access pattern.
    #[must_use]
    pub fn new(command: &'c Command) -> Self {
        let mut request = command.request.clone();
        request.insert("ReturnConsumedCapacity".to_owned(), Value::from("INDEXES"));
        Self { command, outcome: Outcome::default(), next: Some(request), pages: 0 }
    }

    /// Returns the next request; `None` at the end.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        let parameters = Value::Object(self.next.clone()?);
        Some(Request { operation: self.command.operation.name(), parameters })
    }

    /// Processes the response to the last request.
    pub fn take(&mut self, is_success: bool, body: &str) {
        let mut body: Value = serde_json::from_str(body).unwrap_or_default();
        let request = self.next.take().unwrap_or_default();
        if !is_success {
            let text = |name: &str| body.get(name).and_then(Value::as_str);
            let code = text("__type").and_then(|code| code.rsplit('#').next()).unwrap_or_default();
            let message = text("message").or_else(|| text("Message")).unwrap_or_default();
            self.outcome.refusal = Some(format!("{code}: {message}"));
            self.outcome.answer = body;
            return;
        }
        self.take_capacity(body.get("ConsumedCapacity"));
        if let Some(members) = body.as_object_mut() {
            members.remove("ConsumedCapacity");
        }
        let number = |name: &str| body.get(name).and_then(Value::as_u64).unwrap_or(0);
        if self.command.operation.reads_range() {
            self.outcome.read += number("ScannedCount");
            self.outcome.returned += number("Count");
        } else if self.command.operation.is_read() {
            let found = found(&body);
            self.outcome.read += found;
            self.outcome.returned += found;
        }
        let last = body.get("LastEvaluatedKey").cloned();
        self.merge(body);
        self.pages += 1;
        let is_full = self.command.items_max.is_some_and(|most| self.outcome.returned >= most);
        if let Some(last) = last
            && self.command.reads_all_pages
            && !is_full
            && self.pages < PAGES_MAX
        {
            let mut request = request;
            request.insert("ExclusiveStartKey".to_owned(), last);
            self.next = Some(request);
        }
    }

    /// Returns the combined result of all pages.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        self.outcome
    }

    fn take_capacity(&mut self, capacity: Option<&Value>) {
        let all = match capacity {
            Some(Value::Array(all)) => all.iter().collect(),
            Some(one) => vec![one],
            None => Vec::new(),
        };
        for one in all {
            let Some(table) = one.get("TableName").and_then(Value::as_str) else { continue };
            let units =
                |part: &Value| part.get("CapacityUnits").and_then(Value::as_f64).unwrap_or(0.0);
            self.add(table, None, one.get("Table").map_or(0.0, units));
            for kind in ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"] {
                let indexes = one.get(kind).and_then(Value::as_object);
                for (index, part) in indexes.into_iter().flatten() {
                    self.add(table, Some(index), units(part));
                }
            }
        }
    }

    fn add(&mut self, table: &str, index: Option<&str>, units: f64) {
        if units <= 0.0 {
            return;
        }
        let is_read = self.command.operation.is_read();
        let (reads, writes) = if is_read { (units, 0.0) } else { (0.0, units) };
        let mut all = self.outcome.consumed.iter_mut();
        match all.find(|found| found.table == table && found.index.as_deref() == index) {
            Some(found) => {
                found.reads += reads;
                found.writes += writes;
            }
            None => {
                let (table, index) = (table.to_owned(), index.map(str::to_owned));
                self.outcome.consumed.push(Consumed { table, index, reads, writes });
            }
        }
    }

    /// Adds a page to the answer.
    fn merge(&mut self, mut page: Value) {
        if self.pages == 0 {
            self.outcome.answer = page;
            return;
        }
        let Some(answer) = self.outcome.answer.as_object_mut() else { return };
        let more = page.get_mut("Items").and_then(Value::as_array_mut).map(std::mem::take);
        if let Some(items) = answer.get_mut("Items").and_then(Value::as_array_mut) {
            items.extend(more.unwrap_or_default());
        }
        answer.insert("Count".to_owned(), Value::from(self.outcome.returned));
        answer.insert("ScannedCount".to_owned(), Value::from(self.outcome.read));
        match page.get("LastEvaluatedKey") {
            Some(last) => drop(answer.insert("LastEvaluatedKey".to_owned(), last.clone())),
            None => drop(answer.remove("LastEvaluatedKey")),
        }
    }
}

/// Returns the number of items in the response to a GetItem or batch read.
fn found(body: &Value) -> u64 {
    let is_item = |member: &&Value| member.get("Item").is_some();
    let count = match body.get("Responses") {
        Some(Value::Array(members)) => members.iter().filter(is_item).count(),
        Some(Value::Object(tables)) => {
            tables.values().filter_map(Value::as_array).map(Vec::len).sum()
        }
        _ => usize::from(body.get("Item").is_some()),
    };
    count as u64
}

/// Returns true if an operation can create items.
#[must_use]
pub fn may_create(operation: Operation) -> bool {
    !operation.is_read() && operation != Operation::DeleteItem
}
