//! Tests of the maximum number of indexes of a table, and of the attributes that all indexes project.
//!
//! Source: AWS, "Quotas in Amazon DynamoDB", secondary indexes per table, projected attributes.

use serde_json::json;

use super::*;

/// The requested number of indexes and attributes of a table.
#[derive(Clone, Copy, Default)]
struct Asked {
    local: usize,
    global: usize,
    /// The number of attributes, other than keys, that each global index projects.
    projected: usize,
}

fn key(name: &str, kind: &str) -> Value {
    json!({"AttributeName": name, "KeyType": kind})
}

fn definition(name: &str) -> Value {
    json!({"AttributeName": name, "AttributeType": "S"})
}

fn global(number: usize, projected: usize) -> Value {
    let names: Vec<String> = (0..projected).map(|at| format!("n{at}")).collect();
    let projection = match projected {
        0 => json!({"ProjectionType": "KEYS_ONLY"}),
        _ => json!({"ProjectionType": "INCLUDE", "NonKeyAttributes": names}),
    };
    json!({"IndexName": format!("global-{number}"), "KeySchema": [key("g", "HASH")],
        "Projection": projection})
}

fn create(name: &str, Asked { local, global: globals, projected }: Asked) -> String {
    let mut body = json!({
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [definition("pk"), definition("sk")],
        "KeySchema": [key("pk", "HASH"), key("sk", "RANGE")],
    });
    let index = |number: usize| {
        json!({"IndexName": format!("local-{number}"), "Projection": {"ProjectionType": "ALL"},
            "KeySchema": [key("pk", "HASH"), key("l", "RANGE")]})
    };
    let definitions = body["AttributeDefinitions"].as_array_mut().unwrap();
    definitions.extend((local > 0).then(|| definition("l")));
    definitions.extend((globals > 0).then(|| definition("g")));
    if local > 0 {
        body["LocalSecondaryIndexes"] = (0..local).map(index).collect();
    }
    if globals > 0 {
        let all = (0..globals).map(|number| global(number, projected));
        body["GlobalSecondaryIndexes"] = all.collect();
    }
    body.to_string()
}

/// Returns the type and the message of an error, or `ok`.
async fn outcome(store: &Store, operation: &str, body: &str) -> String {
    let response = call(store, operation, body).await;
    if response.status == 200 {
        return "ok".to_owned();
    }
    let body: Value = serde_json::from_str(&response.body).unwrap();
    let (_, kind) = body["__type"].as_str().unwrap().split_once('#').unwrap();
    format!("{kind}: {}", body["message"].as_str().unwrap())
}

const INVALID: &str = "ValidationException: One or more parameter values were invalid: ";

/// Goal: the maximum numbers of indexes and projected attributes are those of DynamoDB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_table_has_at_most_the_maximum_of_indexes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path()).await;
    let asked = Asked::default();
    let locals = "Number of LocalSecondaryIndexes exceeds per-table limit of 5";
    let globals = "GlobalSecondaryIndex count exceeds the per-table limit of 20";
    let attributes =
        "Number of NonKeyAttributes over all indexes exceeds the per-table limit of 100";
    for (number, (asked, expected)) in [
        (Asked { local: 5, global: 20, ..asked }, None),
        (Asked { local: 6, ..asked }, Some(locals)),
        (Asked { global: 21, ..asked }, Some(globals)),
        (Asked { local: 101, ..asked }, Some(locals)),
        (Asked { global: 101, ..asked }, Some(globals)),
        // An attribute counts once for each index that projects it.
        (Asked { global: 5, projected: 20, ..asked }, None),
        (Asked { global: 6, projected: 17, ..asked }, Some(attributes)),
    ]
    .into_iter()
    .enumerate()
    {
        let expected = expected.map_or("ok".to_owned(), |text| format!("{INVALID}{text}"));
        let body = create(&format!("t-{number}"), asked);
        assert_eq!(outcome(&store, "CreateTable", &body).await, expected, "{number}");
    }
}

/// Goal: the same limits apply when a global index is added to an existing table. After an index is
/// deleted, another index can be added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_table_gets_at_most_the_maximum_of_indexes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store_without_ticks(directory.path()).await;
    succeed(&store, "CreateTable", &create("t-20", Asked { global: 20, ..Asked::default() })).await;
    let add = |table: &str, projected| {
        let update = json!({"TableName": table, "AttributeDefinitions": [definition("g")],
            "GlobalSecondaryIndexUpdates": [{"Create": global(20, projected)}]});
        update.to_string()
    };
    let expected = "LimitExceededException: Subscriber limit exceeded: Number of global secondary indexes exceeds per-table limit of 20";
    assert_eq!(outcome(&store, "UpdateTable", &add("t-20", 0)).await, expected);
    let delete = json!({"TableName": "t-20",
        "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "global-7"}}]});
    succeed(&store, "UpdateTable", &delete.to_string()).await;
    // A deleted index counts until the periodic work has removed it.
    for _ in 0..20 {
        ticks::tick(&store).await.unwrap();
    }
    assert_eq!(outcome(&store, "UpdateTable", &add("t-20", 0)).await, "ok");

    let full = Asked { global: 5, projected: 20, ..Asked::default() };
    succeed(&store, "CreateTable", &create("t-100", full)).await;
    let expected = format!(
        "{INVALID}Number of NonKeyAttributes over all indexes exceeds the per-table limit of 100"
    );
    assert_eq!(outcome(&store, "UpdateTable", &add("t-100", 1)).await, expected);
    assert_eq!(outcome(&store, "UpdateTable", &add("t-100", 0)).await, "ok");
}
