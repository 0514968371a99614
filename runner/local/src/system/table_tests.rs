//! Tests of a template's tables and indexes on a store in this process: `weir up` creates them,
//! finds them on a second start, adds indexes, and refuses changes that are not possible.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveStatus};

use super::tables::carry_out;
use template::{Context, Table, read};
use testing::store::TestStore;

fn tables(properties: &str) -> Vec<Table> {
    let billing = match properties.contains("ProvisionedThroughput") {
        true => "",
        false => "      BillingMode: PAY_PER_REQUEST\n",
    };
    let text = format!(
        "Resources:\n  Films:\n    Type: AWS::DynamoDB::Table\n    Properties:\n      TableName: films\n{billing}{properties}"
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

/// Returns the attribute names of the items that an index has under one partition key.
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
    // A template with fewer indexes removes no index.
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
            "table `films` (Films): the table's index `by-director` exists as (director) INCLUDE plot, but the template has (director) INCLUDE genre; give the index a different name in the template, or delete the existing index first",
        ),
        (
            format!("{INDEXED}{LOCAL}"),
            "table `films` (Films): the table exists without the local index `year-by-rank`, and a local index can be created only together with its table; rename the table in the template, or delete the data folder to start over",
        ),
    ];
    for (properties, expected) in cases {
        assert_eq!(
            carry_out(&served.client, &tables(&properties)).await.unwrap_err().to_string(),
            expected
        );
    }
}

/// Returns the table's TTL after its last change is complete.
async fn time_to_live(client: &Client) -> (TimeToLiveStatus, Option<String>) {
    loop {
        let answer = client.describe_time_to_live().table_name("films").send().await.unwrap();
        let found = answer.time_to_live_description.unwrap();
        let status = found.time_to_live_status.unwrap();
        if matches!(status, TimeToLiveStatus::Enabled | TimeToLiveStatus::Disabled) {
            return (status, found.attribute_name);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_ttl_that_the_template_no_longer_has_is_switched_off_and_another_attribute_is_refused() {
    let served = TestStore::open().await;
    let with = |specification: &str| {
        tables(&format!("{PLAIN}      TimeToLiveSpecification: {specification}\n"))
    };
    let until = with("{AttributeName: until, Enabled: true}");
    let off = (TimeToLiveStatus::Disabled, None);
    for without in [tables(PLAIN), with("{AttributeName: until, Enabled: false}")] {
        carry_out(&served.client, &until).await.unwrap();
        let on = (TimeToLiveStatus::Enabled, Some("until".to_owned()));
        assert_eq!(time_to_live(&served.client).await, on);
        // If TTL is already set as in the template, nothing changes.
        carry_out(&served.client, &until).await.unwrap();
        let other = carry_out(&served.client, &with("{AttributeName: gone, Enabled: true}")).await;
        assert_eq!(
            other.unwrap_err().to_string(),
            "table `films` (Films): the table's TTL attribute is `until`, but the template has `gone`; start `weir up` once without TimeToLiveSpecification, which disables TTL, then with the new attribute"
        );
        carry_out(&served.client, &without).await.unwrap();
        assert_eq!(time_to_live(&served.client).await, off);
    }
}

/// Returns the units of the table and of its first index: read, then write.
async fn units(client: &Client) -> [(i64, i64); 2] {
    let answer = client.describe_table().table_name("films").send().await.unwrap();
    let table = answer.table.unwrap();
    let index = table.global_secondary_indexes().first().unwrap();
    [table.provisioned_throughput().unwrap(), index.provisioned_throughput().unwrap()]
        .map(|found| (found.read_capacity_units.unwrap(), found.write_capacity_units.unwrap()))
}

#[tokio::test]
async fn billing_mode_and_throughput_follow_the_template_with_the_indexes() {
    let served = TestStore::open().await;
    let table = PLAIN.replace(
        "AttributeType: S}]",
        "AttributeType: S}, {AttributeName: director, AttributeType: S}]",
    );
    let index = |throughput: &str| {
        format!(
            "      GlobalSecondaryIndexes:\n        - {{IndexName: by-director, KeySchema: [{{AttributeName: director, KeyType: HASH}}], Projection: {{ProjectionType: ALL}}{throughput}}}\n"
        )
    };
    let units_of = |read: u32, write: u32| {
        format!("ProvisionedThroughput: {{ReadCapacityUnits: {read}, WriteCapacityUnits: {write}}}")
    };
    let on_demand = format!("{table}{}", index(""));
    let provisioned = |own: String, of_index: String| {
        format!("{table}      {own}\n{}", index(&format!(", {of_index}")))
    };
    let cases = [
        (on_demand.clone(), [(0, 0), (0, 0)]),
        (provisioned(units_of(5, 6), units_of(7, 8)), [(5, 6), (7, 8)]),
        (provisioned(units_of(9, 6), units_of(7, 8)), [(9, 6), (7, 8)]),
        (provisioned(units_of(9, 6), units_of(7, 3)), [(9, 6), (7, 3)]),
        (provisioned(units_of(9, 6), units_of(7, 3)), [(9, 6), (7, 3)]),
        (on_demand, [(0, 0), (0, 0)]),
    ];
    for (properties, expected) in cases {
        carry_out(&served.client, &tables(&properties)).await.unwrap();
        assert_eq!(units(&served.client).await, expected, "{properties}");
    }
    let without_index = format!("{PLAIN}      {}\n", units_of(5, 5));
    assert_eq!(
        carry_out(&served.client, &tables(&without_index)).await.unwrap_err().to_string(),
        "table `films` (Films): the template sets provisioned throughput for the table, but not for the table's index `by-director`; add the index to GlobalSecondaryIndexes, or delete the index first"
    );
}
