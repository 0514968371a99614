//! Tables and indexes of a template, carried out on a store in this process: made, found again,
//! added to, and refused.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;

use super::tables::carry_out;
use crate::template::{Context, Table, read};
use crate::test_store::TestStore;

fn tables(properties: &str) -> Vec<Table> {
    let text = format!(
        "Resources:\n  Films:\n    Type: AWS::DynamoDB::Table\n    Properties:\n      TableName: films\n      BillingMode: PAY_PER_REQUEST\n{properties}"
    );
    read("films.yaml", &text, &Context::default()).unwrap_or_else(|found| panic!("{found}")).tables
}

const PLAIN: &str = "
      AttributeDefinitions: [{AttributeName: year, AttributeType: N}, {AttributeName: title, AttributeType: S}]
      KeySchema: [{AttributeName: year, KeyType: HASH}, {AttributeName: title, KeyType: RANGE}]
";

const INDEXED: &str = "
      AttributeDefinitions: [{AttributeName: year, AttributeType: N}, {AttributeName: title, AttributeType: S}, {AttributeName: director, AttributeType: S}, {AttributeName: rank, AttributeType: N}]
      KeySchema: [{AttributeName: year, KeyType: HASH}, {AttributeName: title, KeyType: RANGE}]
      GlobalSecondaryIndexes:
        - {IndexName: by-director, KeySchema: [{AttributeName: director, KeyType: HASH}], Projection: {ProjectionType: INCLUDE, NonKeyAttributes: [plot]}}
        - {IndexName: by-rank, KeySchema: [{AttributeName: rank, KeyType: HASH}, {AttributeName: title, KeyType: RANGE}], Projection: {ProjectionType: KEYS_ONLY}}
";

const LOCAL: &str = "
      LocalSecondaryIndexes:
        - {IndexName: year-by-rank, KeySchema: [{AttributeName: year, KeyType: HASH}, {AttributeName: rank, KeyType: RANGE}], Projection: {ProjectionType: ALL}}
";

async fn put(client: &Client, title: &str) {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    client
        .put_item()
        .table_name("films")
        .item("year", AttributeValue::N("2026".to_owned()))
        .item("title", text(title))
        .item("director", text("Weir"))
        .item("rank", AttributeValue::N("7".to_owned()))
        .item("plot", text("water"))
        .item("secret", text("not projected"))
        .send()
        .await
        .unwrap();
}

/// The attribute names of the items that an index holds under one partition key.
async fn names(client: &Client, index: &str, key: &str, value: AttributeValue) -> Vec<String> {
    let answer = client
        .query()
        .table_name("films")
        .index_name(index)
        .key_condition_expression("#k = :v")
        .expression_attribute_names("#k", key)
        .expression_attribute_values(":v", value)
        .send()
        .await
        .unwrap();
    let sorted = |item: &std::collections::HashMap<String, AttributeValue>| {
        let mut names: Vec<&str> = item.keys().map(String::as_str).collect();
        names.sort_unstable();
        names.join(" ")
    };
    answer.items().iter().map(sorted).collect()
}

#[tokio::test]
async fn a_new_table_has_its_indexes_and_a_second_run_finds_them() {
    let served = TestStore::open().await;
    let wanted = tables(&format!("{INDEXED}{LOCAL}"));
    carry_out(&served.client, &wanted).await.unwrap();
    carry_out(&served.client, &wanted).await.unwrap();
    put(&served.client, "a").await;
    let number = |text: &str| AttributeValue::N(text.to_owned());
    let weir = AttributeValue::S("Weir".to_owned());
    assert_eq!(
        names(&served.client, "by-director", "director", weir).await,
        ["director plot title year"]
    );
    assert_eq!(names(&served.client, "by-rank", "rank", number("7")).await, ["rank title year"]);
    assert_eq!(
        names(&served.client, "year-by-rank", "year", number("2026")).await,
        ["director plot rank secret title year"]
    );
}

#[tokio::test]
async fn a_table_that_is_there_gets_the_global_indexes_that_it_lacks_with_its_items() {
    let served = TestStore::open().await;
    carry_out(&served.client, &tables(PLAIN)).await.unwrap();
    put(&served.client, "before").await;
    carry_out(&served.client, &tables(INDEXED)).await.unwrap();
    let weir = AttributeValue::S("Weir".to_owned());
    assert_eq!(names(&served.client, "by-director", "director", weir).await.len(), 1);
    // A template with fewer indexes removes none.
    carry_out(&served.client, &tables(PLAIN)).await.unwrap();
    let seven = AttributeValue::N("7".to_owned());
    assert_eq!(names(&served.client, "by-rank", "rank", seven).await.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_made_so_is_said() {
    let served = TestStore::open().await;
    carry_out(&served.client, &tables(INDEXED)).await.unwrap();
    let other = INDEXED.replace("NonKeyAttributes: [plot]", "NonKeyAttributes: [genre]");
    let cases = [
        (
            other,
            "table `films` (Films): its index `by-director` is there as (director) INCLUDE plot and the template says (director) INCLUDE genre; give the index another name, or delete it first",
        ),
        (
            format!("{INDEXED}{LOCAL}"),
            "table `films` (Films): it is there without the local index `year-by-rank`, which can be made only together with its table; rename the table in the template, or delete the data directory to begin anew",
        ),
    ];
    for (properties, expected) in cases {
        assert_eq!(carry_out(&served.client, &tables(&properties)).await.unwrap_err(), expected);
    }
}
