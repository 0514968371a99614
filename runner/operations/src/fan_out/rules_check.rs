//! `weir fan-out check`: checks the rules, and the tables that they name.
//!
//! The check writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{KeySchemaElement, KeyType, StreamViewType, TableDescription};
use model::KeyAttributeType;
use rules::fan_out::{CopyRule, TableShape, check_jobs_table, check_tables};
use serde_json::{Value, json};

use client::exit::Exit;
use client::failure::{Context, Failure, Result, fatal};
use client::output::{self, Output, counted, say};
use client::sdk_error::is_not_found;
use template::diagnostic::similar;

/// The columns of the report.
const HEADINGS: [&str; 4] = ["rule", "tables", "attributes", "finding"];

/// Number of origins that are read as a sample for each rule.
const SAMPLED: i32 = 200;

/// The tables and settings that a check reads.
pub(super) struct CheckScope {
    pub(super) client: Client,
    /// The table of jobs, if known.
    pub(super) jobs_table: Option<String>,
}

/// Checks rules. With an endpoint, also checks the tables that the rules name.
///
/// # Errors
/// When the endpoint does not respond.
pub(super) async fn run(
    rules: Result<Vec<CopyRule>>,
    asked: Option<&CheckScope>,
    output: Output,
) -> Result<Exit> {
    let rules = match rules {
        Ok(rules) => rules,
        Err(problem) => {
            match output {
                Output::Table => say(&problem.to_string()),
                // The rules cannot be parsed, so their names are unknown.
                Output::Json | Output::Ndjson => {
                    let row = [Value::Null, Value::Null, Value::Null, json!(problem.to_string())];
                    output::rows(output, &HEADINGS, &[row.to_vec()]);
                }
            }
            return Ok(Exit::Differences);
        }
    };
    let mut shapes: BTreeMap<String, Result<TableShape>> = BTreeMap::new();
    let (mut rows, mut is_wrong) = (Vec::new(), false);
    for rule in &rules {
        let verdict = match asked {
            None => Ok(Vec::new()),
            Some(CheckScope { client, .. }) => {
                for table in [&rule.origin, &rule.target] {
                    if !shapes.contains_key(table) {
                        shapes.insert(table.clone(), shape_of(client, table).await?);
                    }
                }
                match check(rule, &shapes) {
                    Err(wrong) => Err(wrong),
                    Ok(mut advice) => {
                        let absent = absent(rule, &sample(client, &rule.origin).await?);
                        is_wrong |= absent.iter().any(|absent| absent.is_slip);
                        advice.extend(absent.into_iter().map(|absent| absent.text));
                        Ok(advice)
                    }
                }
            }
        };
        is_wrong |= verdict.is_err();
        rows.push(vec![
            json!(rule.name),
            json!(format!("{} -> {}", rule.origin, rule.target)),
            json!(rule.attributes.len()),
            json!(finding(verdict)),
        ]);
    }
    if let Some(CheckScope { client, jobs_table }) = asked {
        match jobs_table {
            Some(table) => {
                let shape = shape_of(client, table).await?;
                let verdict =
                    shape.and_then(|shape| check_jobs_table(&shape).map_err(Failure::fatal));
                is_wrong |= verdict.is_err();
                let finding = json!(finding(verdict.map(|()| Vec::new())));
                rows.push(vec![Value::Null, json!(table), Value::Null, finding]);
            }
            None => say("the table of jobs was not checked; name it with --jobs-table"),
        }
    }
    output::rows(output, &HEADINGS, &rows);
    Ok(if is_wrong { Exit::Differences } else { Exit::Done })
}

/// Describes the result for a rule: its problem, or advice about its copies.
fn finding(verdict: Result<Vec<String>>) -> String {
    match verdict {
        Err(wrong) => wrong.to_string(),
        Ok(advice) if advice.is_empty() => "ok".to_owned(),
        Ok(advice) => format!("ok; {}", advice.join("; ")),
    }
}

fn check(rule: &CopyRule, shapes: &BTreeMap<String, Result<TableShape>>) -> Result<Vec<String>> {
    let shape = |table: &String| match shapes.get(table) {
        Some(shape) => shape.as_ref().map_err(Clone::clone),
        None => Err(fatal!("table `{table}` was not checked")),
    };
    check_tables(rule, shape(&rule.origin)?, shape(&rule.target)?).map_err(Failure::fatal)
}

/// An attribute that a rule copies, but that no origin in the sample has.
#[derive(Debug, PartialEq)]
struct Absent {
    text: String,
    /// True if origins have an attribute with a similar name, so that the name in the rule is
    /// probably misspelt.
    is_slip: bool,
}

/// Returns the copied attributes that no origin in the sample has. `items` has the attribute names
/// of each item.
fn absent(rule: &CopyRule, items: &[Vec<String>]) -> Vec<Absent> {
    let known: BTreeSet<&str> = items.iter().flatten().map(String::as_str).collect();
    let wanted: BTreeSet<&str> = rule.attributes.values().map(String::as_str).collect();
    let lacks = wanted.difference(&known).filter(|_| !items.is_empty());
    let absent = lacks.map(|name| {
        let meant = similar(name, known.iter().copied());
        let hint = meant.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        let of = counted(items.len(), "item", "items");
        let text = format!("none of {of} read from `{}` has `{name}`{hint}", rule.origin);
        Absent { text, is_slip: meant.is_some() }
    });
    absent.collect()
}

/// Reads the attribute names of the first items of a table.
///
/// # Errors
/// When the table cannot be read.
async fn sample(client: &Client, table: &str) -> Result<Vec<Vec<String>>> {
    let answer = client.scan().table_name(table).limit(SAMPLED).send().await;
    let answer = answer.context(|| format!("cannot scan table `{table}`"))?;
    let items = answer.items.unwrap_or_default().into_iter();
    Ok(items.map(|item| item.into_keys().collect()).collect())
}

/// Returns the shape of a table, or the finding that it does not exist.
///
/// # Errors
/// When the table cannot be described for another reason.
async fn shape_of(client: &Client, table: &str) -> Result<Result<TableShape>> {
    let answer = match client.describe_table().table_name(table).send().await {
        Ok(answer) => answer,
        Err(error) => {
            let is_missing = is_not_found(&error);
            let failure = Failure::from(error).about(format!("cannot describe table `{table}`"));
            return if is_missing { Ok(Err(failure)) } else { Err(failure) };
        }
    };
    let described = answer
        .table
        .ok_or_else(|| fatal!("DescribeTable returned no description of table `{table}`"))?;
    Ok(Ok(shape(&described)))
}

fn shape(table: &TableDescription) -> TableShape {
    let key_attributes = |schema: &[KeySchemaElement]| -> Vec<String> {
        let mut schema: Vec<_> = schema.iter().collect();
        schema.sort_by_key(|element| element.key_type() != &KeyType::Hash);
        schema.into_iter().map(|element| element.attribute_name().to_owned()).collect()
    };
    let global = table.global_secondary_indexes().iter();
    let global = global.map(|index| (index.index_name(), index.key_schema()));
    let local = table.local_secondary_indexes().iter();
    let local = local.map(|index| (index.index_name(), index.key_schema()));
    let indexes = global.chain(local);
    let indexes =
        indexes.filter_map(|(name, schema)| Some((name?.to_owned(), key_attributes(schema))));
    let view = table.stream_specification().and_then(|stream| stream.stream_view_type());
    let types = table.attribute_definitions().iter().filter_map(|definition| {
        let key_type = KeyAttributeType::from_descriptor(definition.attribute_type().as_str())?;
        Some((definition.attribute_name().to_owned(), key_type))
    });
    TableShape {
        name: table.table_name().unwrap_or_default().to_owned(),
        keys: key_attributes(table.key_schema()),
        types: types.collect(),
        has_both_images: view == Some(&StreamViewType::NewAndOldImages),
        indexes: indexes.collect(),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, Projection, ProjectionType,
        ScalarAttributeType, StreamSpecification,
    };
    use rules::fan_out::parse_and_check;

    use super::*;
    use testing::store::TestStore;

    /// Creates a table with a stream, a key and, if given, an index.
    async fn table(
        store: &TestStore,
        name: &str,
        key: (&str, ScalarAttributeType),
        index: Option<(&str, ScalarAttributeType)>,
    ) {
        let partition_key = |name: &str| {
            let key = KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash);
            key.build().unwrap()
        };
        let index_of = |name: &str| {
            let whole = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
            let index = GlobalSecondaryIndex::builder().index_name("by-product").projection(whole);
            index.key_schema(partition_key(name)).build().unwrap()
        };
        let definitions = [Some(key.clone()), index.clone()].into_iter().flatten();
        let definitions = definitions.map(|(name, key_type)| {
            let definition = AttributeDefinition::builder().attribute_name(name);
            definition.attribute_type(key_type).build().unwrap()
        });
        let stream = StreamSpecification::builder().stream_enabled(true);
        let stream = stream.stream_view_type(StreamViewType::NewAndOldImages).build().unwrap();
        let request = store.client.create_table().table_name(name);
        let request = request.billing_mode(BillingMode::PayPerRequest).stream_specification(stream);
        let request = request.key_schema(partition_key(key.0));
        let request = request.set_attribute_definitions(Some(definitions.collect()));
        let indexes = index.map(|(name, _)| vec![index_of(name)]);
        request.set_global_secondary_indexes(indexes).send().await.unwrap();
    }

    #[tokio::test]
    async fn rules_and_a_table_of_jobs_that_can_never_work_are_found() {
        let store = TestStore::open().await;
        let (text, number) = (ScalarAttributeType::S, ScalarAttributeType::N);
        table(&store, "products", ("id", text.clone()), None).await;
        for (name, key_type) in [("texts", text.clone()), ("numbers", number)] {
            table(&store, name, ("line", text.clone()), Some(("productID", key_type))).await;
        }
        table(&store, "jobs", ("job", text), None).await;
        for (target, jobs, expected) in [
            ("texts", Some("jobs"), Exit::Done),
            ("texts", None, Exit::Done),
            ("texts", Some("products"), Exit::Differences),
            ("texts", Some("nope"), Exit::Differences),
            ("numbers", Some("jobs"), Exit::Differences),
        ] {
            let rules = parse_and_check(&format!(
                "- {{name: r, from: products, to: {target}, index: by-product, key: {{productID: id}}, attributes: {{n: name}}, on-delete: keep}}"
            ));
            let rules = rules.map_err(Failure::fatal);
            let asked =
                CheckScope { client: store.client.clone(), jobs_table: jobs.map(str::to_owned) };
            let found = run(rules, Some(&asked), Output::Json).await;
            assert_eq!(found, Ok(expected), "{target}, {jobs:?}");
        }
    }

    #[test]
    fn an_attribute_that_no_origin_has_is_reported() {
        let rule = |from: &str| {
            let text = format!(
                "- {{name: r, from: products, to: lines, index: by-product, key: {{productID: id}}, attributes: {{n: {from}}}, on-delete: keep}}"
            );
            parse_and_check(&text).unwrap().remove(0)
        };
        let items = [vec!["id".to_owned()], vec!["id".to_owned(), "title".to_owned()]];
        let texts = |from: &str, items: &[Vec<String>]| {
            let absent = absent(&rule(from), items).into_iter();
            absent.map(|absent| (absent.text, absent.is_slip)).collect::<Vec<_>>()
        };
        assert_eq!(texts("title", &items), []);
        let told = "none of 2 items read from `products` has `titel`; did you mean `title`?";
        assert_eq!(texts("titel", &items), [(told.to_owned(), true)]);
        let told = "none of 2 items read from `products` has `price`";
        assert_eq!(texts("price", &items), [(told.to_owned(), false)]);
        assert_eq!(texts("titel", &[]), []);
    }

    #[tokio::test]
    async fn an_endpoint_that_does_not_answer_is_a_failure_and_no_finding() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", taken.local_addr().unwrap());
        drop(taken);
        let rules = parse_and_check(
            "- {name: r, from: one, to: two, index: by-id, key: {p: id}, attributes: {n: name}, on-delete: keep}",
        );
        let asked = CheckScope { client: client::endpoint::client(&url), jobs_table: None };
        let rules = rules.map_err(Failure::fatal);
        let said = run(rules, Some(&asked), Output::Json).await.unwrap_err().to_string();
        assert!(said.contains("does not answer"), "{said}");
    }
}
