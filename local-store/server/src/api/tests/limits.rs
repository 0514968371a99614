//! Tests of DynamoDB's limits, at the exact byte and count, and of malicious request bodies.
//!
//! Source: AWS, "Quotas in Amazon DynamoDB".

use super::*;

/// Returns a store with a table that has a string key, a local index and a global index.
async fn store_with_indexes(directory: &Path) -> Store {
    let store = open_store(directory).await;
    let create = r#"{"TableName":"parts","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"},{"AttributeName":"sk","AttributeType":"S"},{"AttributeName":"l","AttributeType":"S"},{"AttributeName":"g","AttributeType":"B"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}],"LocalSecondaryIndexes":[{"IndexName":"local","KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"l","KeyType":"RANGE"}],"Projection":{"ProjectionType":"ALL"}}],"GlobalSecondaryIndexes":[{"IndexName":"global","KeySchema":[{"AttributeName":"g","KeyType":"HASH"}],"Projection":{"ProjectionType":"ALL"}}]}"#;
    succeed(&store, "CreateTable", create).await;
    store
}

/// Returns the message of an error, or `ok`.
async fn outcome(store: &Store, operation: &str, body: &str) -> String {
    let response = call(store, operation, body).await;
    if response.status == 200 {
        return "ok".to_owned();
    }
    let body: Value = serde_json::from_str(&response.body).unwrap();
    let reason = &body["CancellationReasons"][0]["Message"];
    let message = body["message"].as_str().or(body["Message"].as_str()).unwrap_or_default();
    reason.as_str().unwrap_or(message).to_owned()
}

const TOO_LARGE: &str = "Item size has exceeded the maximum allowed size";
const PUT_TOO_LARGE: &str =
    "1 validation error detected: Item size has exceeded the maximum allowed size";
const UPDATE_TOO_LARGE: &str = "Item size to update has exceeded the maximum allowed size";

/// Goal: every write operation accepts an item of 409,600 bytes and refuses a larger item. Entries in
/// local indexes count towards the size; entries in global indexes do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_end_at_400_kilobytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    // With a long key, the charge of the update is smaller than the item, so that the update reaches
    // only the limit of the item's size. The next test is about the charge.
    let key = r#""pk":{"S":"a partition of a long name"},"sk":{"S":"b"}"#;
    // The bytes of the key's names and values, and of the name `v`.
    let overhead =
        "pk".len() + "a partition of a long name".len() + "sk".len() + "b".len() + "v".len();
    for (bytes, put, others, update) in
        [(409_600, "ok", "ok", "ok"), (409_601, PUT_TOO_LARGE, TOO_LARGE, UPDATE_TOO_LARGE)]
    {
        let v = "x".repeat(bytes - overhead);
        let item = format!(r#"{{{key},"v":{{"S":"{v}"}}}}"#);
        let update_parameters = format!(
            r#""TableName":"parts","Key":{{{key}}},"UpdateExpression":"SET v = :v","ExpressionAttributeValues":{{":v":{{"S":"{v}"}}}}"#
        );
        for (operation, body, expected) in [
            ("PutItem", format!(r#"{{"TableName":"parts","Item":{item}}}"#), put),
            (
                "BatchWriteItem",
                format!(r#"{{"RequestItems":{{"parts":[{{"PutRequest":{{"Item":{item}}}}}]}}}}"#),
                others,
            ),
            (
                "TransactWriteItems",
                format!(r#"{{"TransactItems":[{{"Put":{{"TableName":"parts","Item":{item}}}}}]}}"#),
                others,
            ),
            ("UpdateItem", format!("{{{update_parameters}}}"), update),
            (
                "TransactWriteItems",
                format!(r#"{{"TransactItems":[{{"Update":{{{update_parameters}}}}}]}}"#),
                update,
            ),
        ] {
            assert_eq!(outcome(&store, operation, &body).await, expected, "{operation} {bytes}");
        }
    }
    // The entry in the local index contains all attributes, so their size counts twice.
    for (bytes, index, expected) in
        [(204_800, "l", "ok"), (204_801, "l", TOO_LARGE), (409_600, "g", "ok")]
    {
        let (index_value, index_bytes) = match index {
            "l" => (r#"{"S":"z"}"#, 2),
            _ => (r#"{"B":"eg=="}"#, 2),
        };
        let v = "x".repeat(bytes - overhead - index_bytes);
        let body = format!(
            r#"{{"TableName":"parts","Item":{{{key},"{index}":{index_value},"v":{{"S":"{v}"}}}}}}"#
        );
        assert_eq!(outcome(&store, "PutItem", &body).await, expected, "{index} {bytes}");
    }
}

/// Goal: the charge of an `UpdateItem` expression is at most 409,600 bytes. As in the service, the
/// charge is checked before the condition, and an update without an expression has no charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_charge_of_an_update_ends_at_400_kilobytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let at = r#""TableName":"parts","Key":{"pk":{"S":"a"},"sk":{"S":"b"}}"#;
    // Other charges, in bytes: 3 for the update, 19 for the action, 1 for the name.
    let charged = |charge: usize| "x".repeat(charge - 23);
    let value = |v: &str| format!(r#""ExpressionAttributeValues":{{":v":{{"S":"{v}"}}}}"#);
    let failing = r#""ConditionExpression":"attribute_exists(nothing)","#;
    let set = r#""UpdateExpression":"SET v = :v","#;
    for (charge, condition, expected) in [
        (409_601, failing, UPDATE_TOO_LARGE),
        (409_600, failing, "The conditional request failed"),
        (409_601, "", UPDATE_TOO_LARGE),
        (409_600, "", "ok"),
    ] {
        let body = format!("{{{at},{set}{condition}{}}}", value(&charged(charge)));
        assert_eq!(outcome(&store, "UpdateItem", &body).await, expected, "{condition} {charge}");
    }
    let same = charged(409_601);
    let transacted =
        format!(r#"{{"TransactItems":[{{"Update":{{{at},{set}{}}}}}]}}"#, value(&same));
    assert_eq!(outcome(&store, "TransactWriteItems", &transacted).await, "ok");
    let legacy = format!(r#"{{{at},"AttributeUpdates":{{"v":{{"Value":{{"S":"{same}"}}}}}}}}"#);
    assert_eq!(outcome(&store, "UpdateItem", &legacy).await, "ok");
    let statement = format!(
        r#"{{"Statement":"UPDATE parts SET v=? WHERE pk='a' AND sk='b'","Parameters":[{{"S":"{same}"}}]}}"#
    );
    assert_eq!(outcome(&store, "ExecuteStatement", &statement).await, "ok");
}

/// Goal: in parameters without expressions, an attribute name has at most 65,535 bytes, and a name that
/// an index projects at most 255 bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_end_at_their_byte_without_expressions() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let at = r#""TableName":"parts","Key":{"pk":{"S":"a"},"sk":{"S":"b"}}"#;
    let too_large = "Attribute name is too large, must be less than 65536 bytes";
    let detected = format!("1 validation error detected: {too_large}");
    for (operation, before, behind, refused) in [
        ("DeleteItem", r#"{AT,"Expected":{""#, r#"":{"Exists":false}}}"#, &*detected),
        ("UpdateItem", r#"{AT,"AttributeUpdates":{""#, r#"":{"Value":{"S":"x"}}}}"#, &*detected),
        ("GetItem", r#"{AT,"AttributesToGet":[""#, r#""]}"#, too_large),
        ("Scan", r#"{"TableName":"parts","AttributesToGet":[""#, r#""]}"#, too_large),
        (
            "Scan",
            r#"{"TableName":"parts","ScanFilter":{""#,
            r#"":{"ComparisonOperator":"NULL"}}}"#,
            too_large,
        ),
    ] {
        for (bytes, expected) in [(65_535, "ok"), (65_536, refused), (0, "")] {
            let body = format!("{}{}{behind}", before.replace("AT", at), "n".repeat(bytes));
            let got = outcome(&store, operation, &body).await;
            if bytes == 0 {
                assert!(got.ends_with("Empty attribute name"), "{before}: {got}");
            } else {
                assert_eq!(got, expected, "{before} {bytes}");
            }
        }
    }
    let add_index = |name: &str| {
        format!(
            r#"{{"TableName":"parts","AttributeDefinitions":[{{"AttributeName":"g","AttributeType":"B"}}],"GlobalSecondaryIndexUpdates":[{{"Create":{{"IndexName":"more","KeySchema":[{{"AttributeName":"g","KeyType":"HASH"}}],"Projection":{{"ProjectionType":"INCLUDE","NonKeyAttributes":["{name}"]}}}}}}]}}"#
        )
    };
    for bytes in [256, 0] {
        let name = "n".repeat(bytes);
        let got = outcome(&store, "UpdateTable", &add_index(&name)).await;
        assert_eq!(
            got,
            format!(
                "1 validation error detected: Value '[{name}]' at 'globalSecondaryIndexUpdates.1.member.create.projection.nonKeyAttributes' failed to satisfy constraint: Member must satisfy constraint: [Member must have length less than or equal to 255, Member must have length greater than or equal to 1]"
            )
        );
    }
    assert_eq!(outcome(&store, "UpdateTable", &add_index(&"n".repeat(255))).await, "ok");
}

/// Goal: the limits of table keys and index keys count bytes, not characters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_end_at_their_byte() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let hash = "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes";
    let range = "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes";
    let item = |pk: &str, sk: &str, more: &str| {
        format!(
            r#"{{"TableName":"parts","Item":{{"pk":{{"S":"{pk}"}},"sk":{{"S":"{sk}"}}{more}}}}}"#
        )
    };
    let long = |bytes: usize| "é".repeat(bytes / 2) + &"x".repeat(bytes % 2);
    // 2,049 bytes are 2,732 characters of Base64.
    let base64 = |bytes: usize| "AAAA".repeat(bytes / 3) + ["", "AA==", "AAA="][bytes % 3];
    for (body, expected) in [
        (item(&long(2048), "b", ""), "ok"),
        (item(&long(2049), "b", ""), hash),
        (item("a", &long(1024), ""), "ok"),
        (item("a", &long(1025), ""), range),
        (item("a", "b", &format!(r#","l":{{"S":"{}"}}"#, long(1024))), "ok"),
        (item("a", "b", &format!(r#","l":{{"S":"{}"}}"#, long(1025))), range),
        (item("a", "b", &format!(r#","g":{{"B":"{}"}}"#, base64(2048))), "ok"),
        (item("a", "b", &format!(r#","g":{{"B":"{}"}}"#, base64(2049))), hash),
    ] {
        assert_eq!(outcome(&store, "PutItem", &body).await, expected, "{}", body.len());
    }
}

/// Goal: a value has at most 32 levels of nesting, including the scalar. This limit applies to an item,
/// to an expression and to the result of an update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_end_at_32_levels() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let refusal = "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit";
    let told = |maps: usize| match maps {
        // DynamoDB's older message, for a request with this many levels.
        62.. => refusal.to_owned(),
        _ => format!("1 validation error detected: {refusal}"),
    };
    let deep = |maps: usize| {
        format!("{}{{\"S\":\"x\"}}{}", "{\"M\":{\"n\":".repeat(maps), "}}".repeat(maps))
    };
    let put = |maps: usize| {
        let d = deep(maps);
        format!(r#"{{"TableName":"parts","Item":{{"pk":{{"S":"a"}},"sk":{{"S":"b"}},"d":{d}}}}}"#)
    };
    assert_eq!(outcome(&store, "PutItem", &put(31)).await, "ok");
    for maps in [32, 46, 61, 62, 63, 64, 100, 1000, 100_000] {
        assert_eq!(outcome(&store, "PutItem", &put(maps)).await, told(maps), "{maps}");
    }
    let update = |expression: &str, maps: usize| {
        format!(
            r#"{{"TableName":"parts","Key":{{"pk":{{"S":"a"}},"sk":{{"S":"b"}}}},"UpdateExpression":"{expression}","ExpressionAttributeValues":{{":v":{}}}}}"#,
            deep(maps)
        )
    };
    assert_eq!(outcome(&store, "UpdateItem", &update("SET e = :v", 31)).await, "ok");
    for maps in [32, 61, 62, 63, 100, 100_000] {
        let told = match maps {
            62.. => {
                format!("ExpressionAttributeValues contains invalid value: {refusal} for key :v")
            }
            _ => told(maps),
        };
        let update = update("SET e = :v", maps);
        assert_eq!(outcome(&store, "UpdateItem", &update).await, told, "{maps}");
    }
    assert_eq!(outcome(&store, "UpdateItem", &update("SET d.n.n = :v", 29)).await, "ok");
    let made = "Nesting Levels have exceeded supported limits";
    let transacted = format!(r#"{{"TransactItems":[{{"Update":{}}}]}}"#, update("SET e = :v", 32));
    assert_eq!(outcome(&store, "TransactWriteItems", &transacted).await, made);
    assert_eq!(outcome(&store, "UpdateItem", &update("SET d.n.n = :v", 30)).await, made);
}

/// Goal: an expression has at most 4,096 bytes as it was sent, and at most 300 operators.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_end_at_4_kilobytes_and_300_operators() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let scan = |filter: &str| {
        format!(
            r#"{{"TableName":"parts","FilterExpression":"{filter}","ExpressionAttributeValues":{{":v":{{"S":"x"}}}}}}"#
        )
    };
    let sized = |bytes: usize| format!("{} = :v", "a".repeat(bytes - " = :v".len()));
    assert_eq!(outcome(&store, "Scan", &scan(&sized(4096))).await, "ok");
    assert_eq!(
        outcome(&store, "Scan", &scan(&sized(4097))).await,
        "Invalid FilterExpression: Expression size has exceeded the maximum allowed size; expression size: 4097"
    );
    // Each comparison and each AND is one operator.
    let operators = |comparisons: usize| vec!["a=:v"; comparisons].join(" AND ");
    assert_eq!(outcome(&store, "Scan", &scan(&format!("NOT {}", operators(150)))).await, "ok");
    assert_eq!(
        outcome(&store, "Scan", &scan(&operators(151))).await,
        "Invalid FilterExpression: The expression contains too many operators; operator count: 301"
    );
}

/// Goal: an error about a too long filter contains its length only in a Scan, and an error about a too
/// long condition only in a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_size_of_an_expression_is_reported_where_the_service_does() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let sized = |bytes: usize| format!("{} = :v", "a".repeat(bytes - " = :v".len()));
    let refusal = |kind: &str| {
        format!("Invalid {kind}: Expression size has exceeded the maximum allowed size;")
    };
    for (operation, request, expected) in [
        (
            "GetItem",
            r#""Key":{"pk":{"S":"a"},"sk":{"S":"b"}},"ProjectionExpression":"EXPRESSION""#,
            refusal("ProjectionExpression"),
        ),
        (
            "Query",
            r#""KeyConditionExpression":"pk = :v","FilterExpression":"EXPRESSION","ExpressionAttributeValues":{":v":{"S":"x"}}"#,
            refusal("FilterExpression"),
        ),
        (
            "Query",
            r#""KeyConditionExpression":"EXPRESSION","ExpressionAttributeValues":{":v":{"S":"x"}}"#,
            refusal("KeyConditionExpression"),
        ),
        (
            "DeleteItem",
            r#""Key":{"pk":{"S":"a"},"sk":{"S":"b"}},"ConditionExpression":"EXPRESSION","ExpressionAttributeValues":{":v":{"S":"x"}}"#,
            format!("1 validation error detected: {}", refusal("ConditionExpression")),
        ),
    ] {
        let request = request.replace("EXPRESSION", &sized(4097));
        let request = format!(r#"{{"TableName":"parts",{request}}}"#);
        assert_eq!(outcome(&store, operation, &request).await, expected, "{operation}");
    }
    let transaction = format!(
        r#"{{"TransactItems":[{{"Delete":{{"TableName":"parts","Key":{{"pk":{{"S":"a"}},"sk":{{"S":"b"}}}},"ConditionExpression":"{}","ExpressionAttributeValues":{{":v":{{"S":"x"}}}}}}}}]}}"#,
        sized(4097)
    );
    assert_eq!(
        outcome(&store, "TransactWriteItems", &transaction).await,
        format!("{} expression size: 4097", refusal("ConditionExpression"))
    );
}

/// Goal: a transaction has at most 100 operations and 4 MB, and is written atomically with its index
/// entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_end_at_100_operations_and_4_megabytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let puts = |count: usize, bytes: usize| {
        let v = "x".repeat(bytes);
        let puts: Vec<String> = (0..count)
            .map(|n| {
                format!(
                    r#"{{"Put":{{"TableName":"parts","Item":{{"pk":{{"S":"t{n}"}},"sk":{{"S":"b"}},"g":{{"B":"eg=="}},"v":{{"S":"{v}"}}}}}}}}"#
                )
            })
            .collect();
        format!(r#"{{"TransactItems":[{}],"ReturnConsumedCapacity":"INDEXES"}}"#, puts.join(","))
    };
    let made = succeed(&store, "TransactWriteItems", &puts(100, 10)).await;
    let consumed = &made["ConsumedCapacity"][0];
    assert_eq!(consumed["CapacityUnits"], 300.0);
    assert_eq!(consumed["GlobalSecondaryIndexes"]["global"]["CapacityUnits"], 100.0);
    let too_many = |kind: &str| {
        let shown = vec![kind; 101].join(", ");
        format!(
            "1 validation error detected: Value '[{shown}]' at 'transactItems' failed to satisfy constraint: Member must have length less than or equal to 100"
        )
    };
    let refused = outcome(&store, "TransactWriteItems", &puts(101, 10)).await;
    assert_eq!(refused, too_many("TransactWriteItem"));

    let gets = |count: usize| {
        let gets: Vec<String> = (0..count)
            .map(|n| {
                format!(
                    r#"{{"Get":{{"TableName":"parts","Key":{{"pk":{{"S":"t{n}"}},"sk":{{"S":"b"}}}}}}}}"#
                )
            })
            .collect();
        format!(r#"{{"TransactItems":[{}]}}"#, gets.join(","))
    };
    let got = succeed(&store, "TransactGetItems", &gets(100)).await;
    assert_eq!(got["Responses"].as_array().unwrap().len(), 100);
    let refused = outcome(&store, "TransactGetItems", &gets(101)).await;
    assert_eq!(refused, too_many("TransactGetItem"));

    let too_large = outcome(&store, "TransactWriteItems", &puts(12, 350_000)).await;
    assert!(too_large.contains("4 MB"), "{too_large}");
    let global = r#"{"TableName":"parts","IndexName":"global","Select":"COUNT"}"#;
    assert_eq!(succeed(&store, "Scan", global).await["Count"], 100);
    // The bytes of 16 items without the value of `v`: `pk`, `t0` or `t10`, `sk`, `b`, `g`, one byte, `v`.
    let overhead = 10 * (2 + 2 + 2 + 1 + 1 + 1 + 1) + 6 * (2 + 3 + 2 + 1 + 1 + 1 + 1);
    let content = (4 * 1024 * 1024 - overhead) / 16;
    let left = 4 * 1024 * 1024 - overhead - 16 * content;
    let exact = |bytes: usize| puts(16, content).replacen("xxx", &"x".repeat(3 + left + bytes), 1);
    assert_eq!(outcome(&store, "TransactWriteItems", &exact(0)).await, "ok");
    let too_large = outcome(&store, "TransactWriteItems", &exact(1)).await;
    assert!(too_large.contains("4 MB"), "{too_large}");
    let got = outcome(&store, "TransactGetItems", &gets(16)).await;
    assert_eq!(got, "ok");
    succeed(&store, "TransactWriteItems", &puts(11, 350_000)).await;
    assert_eq!(
        succeed(&store, "TransactGetItems", &gets(11)).await["Responses"][10]["Item"]["pk"]["S"],
        "t10"
    );
    succeed(&store, "PutItem", &format!(r#"{{"TableName":"parts","Item":{{"pk":{{"S":"t11"}},"sk":{{"S":"b"}},"v":{{"S":"{}"}}}}}}"#, "x".repeat(400_000))).await;
    let too_large = outcome(&store, "TransactGetItems", &gets(12)).await;
    assert!(too_large.contains("4 MB"), "{too_large}");
}

/// Goal: as in the service, provisioned throughput can be decreased four times a day and then once an
/// hour. The error contains the time of the next possible decrease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throughput_shrinks_four_times_on_a_day_and_then_once_an_hour() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_store(directory.path()).await;
    let day = 24 * 60 * 60 * 1000;
    let now = store.clock().freeze();
    // Sets the clock to 01:00 UTC of the next day.
    store.clock().advance(day - now.0 % day + 60 * 60 * 1000);
    let create = r#"{"TableName":"parts","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}],"ProvisionedThroughput":{"ReadCapacityUnits":20,"WriteCapacityUnits":20}}"#;
    succeed(&store, "CreateTable", create).await;
    let units = |units: u64| {
        format!(
            r#"{{"TableName":"parts","ProvisionedThroughput":{{"ReadCapacityUnits":{units},"WriteCapacityUnits":{units}}}}}"#
        )
    };
    for (advance, to, expected) in [
        (0, 19, "ok"),
        (0, 18, "ok"),
        (0, 17, "ok"),
        (0, 16, "ok"),
        (0, 15, "refused"),
        (0, 30, "ok"),
        (3_599_999, 15, "refused"),
        (1, 15, "ok"),
        (0, 14, "refused"),
        (day, 14, "ok"),
    ] {
        store.clock().advance(advance);
        let got = outcome(&store, "UpdateTable", &units(to)).await;
        if expected == "ok" {
            assert_eq!(got, "ok", "{to}");
        } else {
            assert!(got.starts_with("Subscriber limit exceeded: Provisioned throughput decreases are limited within a given UTC day. After the first 4 decreases, each subsequent decrease in the same UTC day can be performed at most once every 3600 seconds. Number of decreases today: "), "{got}");
            assert!(got.ends_with(":00:00 AM Coordinated Universal Time"), "{got}");
        }
    }
    let table = succeed(&store, "DescribeTable", r#"{"TableName":"parts"}"#).await;
    assert_eq!(table["Table"]["ProvisionedThroughput"]["NumberOfDecreasesToday"], 1);
}

/// Goal: a deeply nested, huge or repetitive body causes an error, and the store remains available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bodies_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    let million = 1_000_000;
    let many_names: Vec<String> = (0..100_000).map(|n| format!("\"a{}\":1", n % 7)).collect();
    for body in [
        "[".repeat(million),
        "{\"a\":".repeat(million),
        format!("{{\"Item\":{}{}}}", "{\"a\":{\"M\":".repeat(million), "}}".repeat(million)),
        format!("{{\"TableName\":\"{}\"}}", "\\u0041".repeat(million)),
        format!("{{{}}}", many_names.join(",")),
        format!("{{\"TableName\":\"nothing\",\"Item\":{{{}}}}}", many_names.join(",")),
        format!("{{\"Limit\":{}}}", "9".repeat(million)),
        "\u{0}".repeat(million),
    ] {
        for operation in ["PutItem", "Scan", "BatchGetItem", "TransactWriteItems", "CreateTable"] {
            let response = call(&store, operation, &body).await;
            assert_eq!(response.status, 400, "{operation} {}: {}", &body[..40], &response.body);
        }
    }
    let filter = "(".repeat(4000) + "a = :v" + &")".repeat(90);
    let scan = format!(
        r#"{{"TableName":"parts","FilterExpression":"{filter}","ExpressionAttributeValues":{{":v":{{"S":"x"}}}}}}"#
    );
    assert_eq!(call(&store, "Scan", &scan).await.status, 400);
    succeed(&store, "Scan", r#"{"TableName":"parts"}"#).await;
}

/// Goal: the size of a map or list is the size of the names and values in it, plus three bytes, plus
/// one byte for each member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_values_count_to_the_byte() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_indexes(directory.path()).await;
    // The bytes of `pk`, `a`, `sk`, `b` and `v`, and the name of the string.
    let key = 7;
    for (around, cost) in [
        ((r#"{"L":["#, r"]}"), 3 + 1),
        ((r#"{"L":[{"NULL":true},"#, r"]}"), 3 + 1 + 1 + 1),
        ((r#"{"M":{"né":"#, r"}}"), 3 + 1 + 3),
        ((r#"{"M":{"n":{"L":["#, r"]}}}"), 3 + 1 + 1 + 3 + 1),
        ((r#"{"M":{"n":{"N":"-1.5"},"s":"#, r"}}"), 3 + 1 + 1 + 4 + 1 + 1),
        ((r#"{"M":{"n":{"SS":["a","bc"]},"s":"#, r"}}"), 3 + 1 + 1 + 3 + 1 + 1),
    ] {
        for (bytes, expected) in [(409_600, "ok"), (409_601, PUT_TOO_LARGE)] {
            let (before, behind) = around;
            let v = "x".repeat(bytes - key - cost);
            let body = format!(
                r#"{{"TableName":"parts","Item":{{"pk":{{"S":"a"}},"sk":{{"S":"b"}},"v":{before}{{"S":"{v}"}}{behind}}}}}"#
            );
            assert_eq!(outcome(&store, "PutItem", &body).await, expected, "{before} {bytes}");
        }
    }
}

/// Puts items of 400 KB into collection `a`. The last item fills the collection up to `bytes`.
async fn put_together(store: &Store, count: usize, bytes: usize) {
    // The bytes of `pk`, `a`, `sk`, one digit and `v`.
    let overhead = |sk: usize| 2 + 1 + 2 + if sk == 0 { 1 } else { 2 } + 1;
    let mut left = bytes;
    for sk in 0..count {
        let size = if sk + 1 == count { left } else { 409_600 };
        left -= size;
        put(store, "a", sk, size - overhead(sk)).await;
    }
}

/// Goal: a page of a Query or Scan ends with the item that reaches exactly 1 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_end_at_their_byte() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_parts(directory.path(), "").await;
    put(&store, "a", 9, 0).await;
    let megabyte = 1024 * 1024;
    for (bytes, expected) in [(megabyte, vec![3, 1]), (megabyte - 1, vec![4])] {
        put_together(&store, 3, bytes).await;
        let query = r#""TableName":"parts","KeyConditionExpression":"pk = :p","ExpressionAttributeValues":{":p":{"S":"a"}}"#;
        let counted = |found: Vec<Vec<String>>| found.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(counted(pages(&store, "Query", query).await), expected, "{bytes}");
        let scan = r#""TableName":"parts""#;
        assert_eq!(counted(pages(&store, "Scan", scan).await), expected, "{bytes}");
        // A projection does not change where the page ends.
        let shown = format!(r#"{scan},"ProjectionExpression":"sk""#);
        assert_eq!(counted(pages(&store, "Scan", &shown).await), expected, "{bytes}");
    }
}

/// Goal: a batch read returns at most exactly 16 MB, and returns the remaining keys as unprocessed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_reads_end_at_their_byte() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_parts(directory.path(), "").await;
    let keys: Vec<String> =
        (1..=42).map(|sk| format!(r#"{{"pk":{{"S":"a"}},"sk":{{"N":"{sk}"}}}}"#)).collect();
    let body = format!(r#"{{"RequestItems":{{"parts":{{"Keys":[{}]}}}}}}"#, keys.join(","));
    // The bytes of `pk`, `a`, `sk`, a number of at most two digits, and `v`.
    let overhead = 2 + 1 + 2 + 2 + 1;
    for sk in 1..=41 {
        put(&store, "a", sk, 409_200 - overhead).await;
    }
    let left = 16 * 1024 * 1024 - 41 * 409_200;
    for (bytes, unprocessed) in [(left, 0), (left + 1, 1)] {
        put(&store, "a", 42, bytes - overhead).await;
        let found = succeed(&store, "BatchGetItem", &body).await;
        let got = found["Responses"]["parts"].as_array().unwrap().len();
        assert_eq!(got, 42 - unprocessed, "{bytes}");
        let keys = found["UnprocessedKeys"]["parts"]["Keys"].as_array().map_or(0, Vec::len);
        assert_eq!(keys, unprocessed, "{bytes}");
    }
}
