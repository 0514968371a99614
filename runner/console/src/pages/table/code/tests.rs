//! The same requests in four languages, with texts that each language quotes in its own way.

use super::*;
use crate::pages::table::request::tests::{films, form};

fn code(query: &str) -> Code {
    Code::of(&Request::of(&form(query), &films()).unwrap())
}

#[test]
fn a_query_is_the_same_in_every_language() {
    let code = code("pk=2013&sk=R&sk_op=begins_with&order=desc&limit=5&project=info.rating");
    assert_eq!(
        code.cli,
        r##"aws dynamodb query --table-name films \
    --key-condition-expression '#n0 = :v0 AND begins_with(#n1, :v1)' \
    --projection-expression '#n2.#n3' \
    --expression-attribute-names '{"#n0":"year","#n1":"ti'\''tle","#n2":"info","#n3":"rating"}' \
    --expression-attribute-values '{":v0":{"N":"2013"},":v1":{"S":"R"}}' \
    --limit 5 \
    --return-consumed-capacity INDEXES \
    --no-scan-index-forward
"##
    );
    assert_eq!(
        code.python,
        r##"import boto3

client = boto3.client("dynamodb")
page = client.query(
    TableName="films",
    KeyConditionExpression="#n0 = :v0 AND begins_with(#n1, :v1)",
    ProjectionExpression="#n2.#n3",
    ExpressionAttributeNames={"#n0": "year", "#n1": "ti'tle", "#n2": "info", "#n3": "rating"},
    ExpressionAttributeValues={":v0": {"N": "2013"}, ":v1": {"S": "R"}},
    Limit=5,
    ScanIndexForward=False,
    ReturnConsumedCapacity="INDEXES",
)
for item in page["Items"]:
    print(item)
"##
    );
    assert_eq!(
        code.javascript,
        r##"import { DynamoDBClient, QueryCommand } from "@aws-sdk/client-dynamodb";

const client = new DynamoDBClient();
const page = await client.send(new QueryCommand({
  TableName: "films",
  KeyConditionExpression: "#n0 = :v0 AND begins_with(#n1, :v1)",
  ProjectionExpression: "#n2.#n3",
  ExpressionAttributeNames: { "#n0": "year", "#n1": "ti'tle", "#n2": "info", "#n3": "rating" },
  ExpressionAttributeValues: { ":v0": { N: "2013" }, ":v1": { S: "R" } },
  Limit: 5,
  ScanIndexForward: false,
  ReturnConsumedCapacity: "INDEXES",
}));
for (const item of page.Items) {
  console.log(item);
}
"##
    );
    assert_eq!(
        code.rust,
        r##"use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
    let client = Client::new(&config);
    let page = client
        .query()
        .table_name("films")
        .key_condition_expression("#n0 = :v0 AND begins_with(#n1, :v1)")
        .projection_expression("#n2.#n3")
        .expression_attribute_names("#n0", "year")
        .expression_attribute_names("#n1", "ti'tle")
        .expression_attribute_names("#n2", "info")
        .expression_attribute_names("#n3", "rating")
        .expression_attribute_values(":v0", AttributeValue::N("2013".to_owned()))
        .expression_attribute_values(":v1", AttributeValue::S("R".to_owned()))
        .limit(5)
        .scan_index_forward(false)
        .return_consumed_capacity(ReturnConsumedCapacity::Indexes)
        .send()
        .await?;
    for item in page.items() {
        println!("{item:?}");
    }
    Ok(())
}
"##
    );
}

/// Each case: the query string, and a part of the code in the order of [`Code`].
#[test]
fn every_text_is_quoted_as_its_language_does() {
    // The value: it's "q" \ $x `y` \n (a newline) é <b>
    let text = "filter=a&filter_value=it%27s+%22q%22+%5C+%24x+%60y%60%0A%C3%A9+%3Cb%3E";
    let bytes = "filter=a&filter_type=B&filter_value=AAH/";
    let bidirectional = "filter=a&filter_value=%E2%80%AE%01";
    let start = "after=%7B%22__proto__%22:%7B%22S%22:%22x%22%7D%7D";
    let flag = "filter=a&filter_type=BOOL&filter_value=true&consistent=1";
    let null = "filter=a&filter_type=NULL";
    for (query, parts) in [
        (
            text,
            [
                r#"'{":v0":{"S":"it'\''s \"q\" \\ $x `y`\né <b>"}}'"#,
                r#"{":v0": {"S": "it's \"q\" \\ $x `y`\né <b>"}}"#,
                r#"{ ":v0": { S: "it's \"q\" \\ $x `y`\né <b>" } }"#,
                r#"(":v0", AttributeValue::S("it's \"q\" \\ $x `y`\né <b>".to_owned()))"#,
            ],
        ),
        (
            bytes,
            [
                "'{\":v0\":{\"B\":\"AAH/\"}}' \\\n    --limit 25 \\\n    --return-consumed-capacity INDEXES \\\n    --cli-binary-format base64\n",
                r#"{":v0": {"B": bytes.fromhex("0001ff")}}"#,
                r#"{ ":v0": { B: Uint8Array.of(0, 1, 255) } }"#,
                r#"(":v0", AttributeValue::B(Blob::new(vec![0, 1, 255])))"#,
            ],
        ),
        (
            bidirectional,
            [
                "'{\":v0\":{\"S\":\"\u{202e}\\u0001\"}}'",
                "{\":v0\": {\"S\": \"\u{202e}\\u0001\"}}",
                "{ \":v0\": { S: \"\u{202e}\\u0001\" } }",
                // rustc refuses characters that change the direction of a line.
                r#"AttributeValue::S("\u{202e}\u{1}".to_owned())"#,
            ],
        ),
        (
            start,
            [
                r#"--exclusive-start-key '{"__proto__":{"S":"x"}}'"#,
                r#"ExclusiveStartKey={"__proto__": {"S": "x"}}"#,
                r#"ExclusiveStartKey: { ["__proto__"]: { S: "x" } }"#,
                r#".exclusive_start_key("__proto__", AttributeValue::S("x".to_owned()))"#,
            ],
        ),
        (
            flag,
            [
                "--consistent-read",
                r#"{"BOOL": True}"#,
                "ConsistentRead: true",
                "AttributeValue::Bool(true)",
            ],
        ),
        (
            null,
            [
                r#"{"NULL":true}"#,
                r#"{"NULL": True}"#,
                "{ NULL: true }",
                "AttributeValue::Null(true)",
            ],
        ),
    ] {
        let code = code(query);
        for (text, part) in [code.cli, code.python, code.javascript, code.rust].iter().zip(parts) {
            assert!(text.contains(part), "{query}: {part}\n{text}");
        }
    }
}

#[test]
fn a_name_like_an_option_is_no_option() {
    let table = crate::table_shape::TableShape { name: "-films".to_owned(), ..films() };
    let code = Code::of(&Request::of(&form(""), &table).unwrap());
    assert!(code.cli.starts_with("aws dynamodb scan --table-name=-films \\\n"), "{}", code.cli);
}
