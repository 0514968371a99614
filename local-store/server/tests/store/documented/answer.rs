//! Parses the store's responses for comparison.

use model::Item;
use model::json::{self, Json};
use proptest::test_runner::TestCaseError;
use server::api;
use server::store::Store;

/// Calls an operation of the item API.
pub(super) async fn call(store: &Store, operation: &str, body: &str) -> api::Response {
    api::handle(store, &format!("DynamoDB_20120810.{operation}"), body.as_bytes()).await
}

/// Calls an operation that must succeed, and parses its response with `read`.
pub(super) async fn succeed<T>(
    store: &Store,
    target: &str,
    body: &str,
    read: impl FnOnce(&Json<'_>) -> T,
) -> Result<T, TestCaseError> {
    let response = api::handle(store, target, body.as_bytes()).await;
    if response.status != 200 {
        let text = format!("{target} {body}\nanswered {} {}", response.status, response.body);
        return Err(TestCaseError::fail(text));
    }
    Ok(read(&json::parse(response.body.as_bytes()).unwrap()))
}

/// Returns the item in a member of a response; `None` if the member is absent.
pub(super) fn item(answer: &Json<'_>, name: &str) -> Option<Item> {
    answer.get(name).map(|member| json::decode_item(member).unwrap())
}

/// Returns the items in a member of a response that is a list.
pub(super) fn items(answer: &Json<'_>, name: &str) -> Vec<Item> {
    let members = answer.get(name).and_then(Json::as_array).unwrap_or_default();
    members.iter().map(|member| json::decode_item(member).unwrap()).collect()
}

pub(super) fn number(answer: &Json<'_>, name: &str) -> u64 {
    match answer.get(name) {
        Some(Json::Integer(number)) => u64::try_from(*number).unwrap(),
        other => panic!("{name} is {other:?}"),
    }
}

/// Returns the type of an error without its prefix.
pub(super) fn error_type(body: &str) -> String {
    let tree = json::parse(body.as_bytes()).unwrap();
    let name = tree.get("__type").and_then(Json::as_str).unwrap_or_default();
    name.rsplit('#').next().unwrap_or_default().to_owned()
}

/// Returns the message of an error.
pub(super) fn message(body: &str) -> String {
    let tree = json::parse(body.as_bytes()).unwrap();
    tree.get("message").and_then(Json::as_str).unwrap_or_default().to_owned()
}

/// Returns the codes of a transaction's cancellation reasons.
pub(super) fn reasons(body: &str) -> Vec<String> {
    let tree = json::parse(body.as_bytes()).unwrap();
    let reasons = tree.get("CancellationReasons").and_then(Json::as_array).unwrap_or_default();
    let code =
        |reason: &Json<'_>| reason.get("Code").and_then(Json::as_str).unwrap_or("?").to_owned();
    reasons.iter().map(code).collect()
}
