//! The entry points that the fuzz targets share: each entry point takes any bytes, must not panic
//! or run endlessly, and checks the properties of accepted input that its documentation names.
//!
//! `cargo test -p server --test store damaged` runs the same parsers on stable Rust, with randomly
//! changed recorded requests.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use expression::partiql::{StatementText, parse_statement};
use expression::{
    ExpressionKind, KeyExpression, Placeholders, parse_condition, parse_projection, parse_update,
};
use model::{AttributeValue, Item, Number, json};
use server::api::{Response, handle};
use server::store::{Config, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Returns the placeholders that expressions of the corpus use.
fn placeholders() -> Placeholders {
    let number = |n: u64| AttributeValue::N(Number::from(n));
    let names = ["#a", "#b"].map(|name| (name.to_owned(), name[1..].to_owned()));
    let values = [
        (":v".to_owned(), number(1)),
        (":w".to_owned(), AttributeValue::S("w".to_owned())),
        (":l".to_owned(), AttributeValue::L(vec![number(1)])),
    ];
    let placeholders = Placeholders::new(Some(BTreeMap::from(names)), Some(BTreeMap::from(values)));
    placeholders.expect("the names and values are placeholders")
}

fn item() -> Item {
    Item::new().with("a", Number::from(1u64)).with("b", "w")
}

/// Fuzzes every kind of expression. A parsed expression can be evaluated on an item.
pub fn expression(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for kind in [ExpressionKind::Condition, ExpressionKind::Filter] {
        if let Ok(condition) = parse_condition(text, kind, &mut placeholders()) {
            let _ = condition.evaluate(&item());
            let _ = condition.evaluate(&Item::new());
        }
    }
    if let Ok(update) = parse_update(text, &mut placeholders()) {
        let _ = update.apply(&item());
    }
    if let Ok(projection) = parse_projection(text, &mut placeholders()) {
        let _ = projection.apply(&item());
    }
    let _ = KeyExpression::parse(text, &mut placeholders());
}

/// Fuzzes DynamoDB JSON. Writing a parsed item and parsing it again gives the same item.
pub fn json(data: &[u8]) {
    let _ = json::parse(data);
    // Both parsers of requests must return the same result.
    let tree = json::parse_request(data).map_err(|error| error.to_string());
    assert_eq!(json::parse_with_items(data, &[]).map_err(|error| error.to_string()), tree);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(item) = json::item_from_str(text) {
        let mut written = String::new();
        json::write_item(&mut written, &item);
        assert_eq!(json::item_from_str(&written).expect("an item as it was written"), item);
    }
}

/// Fuzzes model files and the commands in them. A model that is read can be priced, checked and written.
pub fn model(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = design::command::Command::parse(text);
    let Ok(model) = design::read("model.yaml", text) else { return };
    let trial = vec![None; model.patterns.len()];
    let prices = design::Prices::own().expect("the prices of this build");
    let estimate = design::estimate::estimate(&model, &trial, &prices);
    let _ = design::findings::find(("model.yaml", text), &model, &trial, (&estimate, &prices));
    let _ = design::sam::template(&model, "model.yaml");
    let written = model.to_json().to_string();
    let again = design::read("model.json", &written).expect("a model as it was written");
    assert_eq!((again.tables, again.items), (model.tables, model.items));
}

/// Fuzzes PartiQL statements with up to three parameters. The meaning of a text does not depend on how
/// often it was parsed before, or with which other values.
pub fn partiql(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let values = [AttributeValue::Bool(true), AttributeValue::Null, AttributeValue::from("S")];
    for count in 0..=values.len() {
        let given = values.get(..count).unwrap_or_default();
        let read = parse_statement(text, given);
        let Ok(mut said) = StatementText::new(text) else { continue };
        assert_eq!(said.with(given.to_vec()), read, "the first time");
        assert_eq!(said.with(given.to_vec()), read, "the second time");
        for (at, value) in (0..count).flat_map(|at| values.iter().map(move |value| (at, value))) {
            let mut other = given.to_vec();
            other.splice(at..=at, [value.clone()]);
            assert_eq!(
                said.clone().with(other.clone()),
                parse_statement(text, &other),
                "{other:?}"
            );
        }
    }
}

/// All operations; `fuzz/run` lists them in the same order.
const OPERATIONS: [&str; 33] = [
    "PutItem",
    "GetItem",
    "UpdateItem",
    "DeleteItem",
    "Query",
    "Scan",
    "BatchGetItem",
    "BatchWriteItem",
    "TransactWriteItems",
    "TransactGetItems",
    "ExecuteStatement",
    "BatchExecuteStatement",
    "ExecuteTransaction",
    "CreateTable",
    "DescribeTable",
    "UpdateTable",
    "DeleteTable",
    "ListTables",
    "UpdateTimeToLive",
    "DescribeTimeToLive",
    "UpdateContinuousBackups",
    "DescribeContinuousBackups",
    "DescribeLimits",
    "TagResource",
    "UntagResource",
    "ListTagsOfResource",
    "PutResourcePolicy",
    "GetResourcePolicy",
    "DeleteResourcePolicy",
    "ListStreams",
    "DescribeStream",
    "GetShardIterator",
    "GetRecords",
];

/// The operations of streams, which have a separate prefix.
const STREAM_OPERATIONS: [&str; 4] =
    ["ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"];

/// The table that most recorded requests name.
const CREATE: &[u8] = br#"{"TableName":"votes","BillingMode":"PAY_PER_REQUEST","StreamSpecification":{"StreamEnabled":true,"StreamViewType":"NEW_AND_OLD_IMAGES"},"AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}"#;

/// A store in a temporary directory. Both exist as long as the process.
struct Target {
    runtime: Runtime,
    store: Store,
    _directory: TempDir,
}

fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let runtime = Runtime::new().expect("a runtime");
        let directory = TempDir::new().expect("a temporary directory");
        let config = Config {
            directory: directory.path().to_path_buf(),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            replicas: 1,
            arcs: 1,
        };
        let open = Store::open(config, Box::new(|reason| panic!("{reason}")));
        let store = runtime.block_on(open).expect("a store");
        let made = runtime.block_on(handle(&store, "DynamoDB_20120810.CreateTable", CREATE));
        assert_eq!(made.status, 200, "{}", made.body);
        Target { runtime, store, _directory: directory }
    })
}

/// Fuzzes requests: the first byte selects the operation, the other bytes are the body. The
/// response to any request is a success or a client error.
pub fn request(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let operation = OPERATIONS[usize::from(*first) % OPERATIONS.len()];
    let Target { runtime, store, .. } = target();
    let api = if STREAM_OPERATIONS.contains(&operation) { "DynamoDBStreams" } else { "DynamoDB" };
    let target = format!("{api}_20120810.{operation}");
    let Response { status, body } = runtime.block_on(handle(store, &target, body));
    assert!(matches!(status, 200 | 400), "{operation}: {status} {body}");
    if operation == "DeleteTable" && status == 200 {
        // Creates the table again for the next request, if this request deleted it.
        runtime.block_on(handle(store, "DynamoDB_20120810.CreateTable", CREATE));
    }
}
