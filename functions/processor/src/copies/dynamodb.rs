//! The tables of origins, copies and jobs on DynamoDB, and what must be so before they are used.
//!
//! Retries of single requests are the SDK's; what its errors mean for us is decided here.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, KeySchemaElement, KeyType, StreamViewType, TableDescription,
};
use model::{AttributeValue, Item};
use rules::fan_out::{
    CopyRule, FanOut, JOB_KEY, JOB_REVISION, Mark, Origin, Update, mark_attribute,
};

use super::{CopyGuard, CopyPage, CopyTables};
use crate::failure::Failure;
use crate::settings::{FAN_OUT_RULES, JOBS_TABLE};
use crate::tables::WriteOutcome;
use crate::tables::attribute_value::{from_sdk_item, to_sdk, to_sdk_item};
use crate::tables::dynamodb::{TableName, failure_of};

/// Copies in one page: a page's writes take well below a second.
const PAGE_COPIES: i32 = 1000;
/// Copies in one sample.
const SAMPLE_COPIES: i32 = 100;
/// Parts of a table of which each sample looks at one.
const SAMPLE_SEGMENTS: i32 = 256;

/// The tables.
#[derive(Clone, Debug)]
pub struct DynamoDbCopies {
    client: Client,
    jobs_table: String,
    /// Names of the key attributes, by table.
    keys: BTreeMap<String, Vec<String>>,
}

fn is_condition_failed(code: Option<&str>) -> bool {
    code == Some("ConditionalCheckFailedException")
}

fn failed<E>(table: &str, setting: &'static str, doing: &str, error: &SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let table = TableName { name: table.to_owned(), setting };
    failure_of(&table, doing, "the key that the rules say", error)
}

fn partition_key(schema: &[KeySchemaElement]) -> Option<&str> {
    let hash = schema.iter().find(|element| element.key_type() == &KeyType::Hash);
    hash.map(KeySchemaElement::attribute_name)
}

impl DynamoDbCopies {
    /// Looks whether every table and index is as the rules say.
    ///
    /// # Errors
    /// What is not, and what to do about it.
    pub async fn open(client: Client, rule: &FanOut) -> Result<Self, Failure> {
        let mut tables =
            Self { client, jobs_table: rule.jobs_table.clone(), keys: BTreeMap::new() };
        for rule in &rule.rules {
            let fatal = |text: String| {
                Failure::Fatal(format!("{FAN_OUT_RULES}: rule `{}`: {text}", rule.name))
            };
            let origin = tables.describe(&rule.origin).await?;
            let keys: Vec<&str> =
                origin.key_schema().iter().map(KeySchemaElement::attribute_name).collect();
            if keys != [rule.origin_key.as_str()] {
                return Err(fatal(format!(
                    "table `{}` has the key ({}), the rule says ({}); origins are found by a partition key alone",
                    rule.origin,
                    keys.join(", "),
                    rule.origin_key
                )));
            }
            let target = tables.describe(&rule.target).await?;
            for table in [&origin, &target] {
                check_stream(table).map_err(fatal)?;
            }
            check_target(rule, &target).map_err(fatal)?;
            let keys = target.key_schema().iter().map(|key| key.attribute_name().to_owned());
            tables.keys.insert(rule.target.clone(), keys.collect());
        }
        Ok(tables)
    }

    async fn describe(&self, table: &str) -> Result<TableDescription, Failure> {
        let answer = self.client.describe_table().table_name(table).send().await;
        let answer =
            answer.map_err(|error| failed(table, FAN_OUT_RULES, "DescribeTable", &error))?;
        answer.table.ok_or_else(|| Failure::Retry(format!("table `{table}` has no description")))
    }

    async fn get(
        &self,
        table: &str,
        key: HashMap<String, SdkValue>,
    ) -> Result<Option<Item>, Failure> {
        let request = self.client.get_item().table_name(table).set_key(Some(key));
        let answer = request.consistent_read(true).send().await;
        let answer = answer.map_err(|error| failed(table, FAN_OUT_RULES, "GetItem", &error))?;
        answer.item.map(from_sdk_item).transpose()
    }

    fn key_of(&self, rule: &CopyRule, item: HashMap<String, SdkValue>) -> Result<Item, Failure> {
        let names = self.keys.get(&rule.target).map(Vec::as_slice).unwrap_or_default();
        let item = from_sdk_item(item)?;
        Ok(item.into_iter().filter(|(name, _)| names.contains(name)).collect())
    }
}

fn check_stream(table: &TableDescription) -> Result<(), String> {
    let view = table.stream_specification().and_then(|stream| stream.stream_view_type());
    if view == Some(&StreamViewType::NewAndOldImages) {
        return Ok(());
    }
    Err(format!(
        "table `{}` needs a stream with NEW_AND_OLD_IMAGES",
        table.table_name().unwrap_or_default()
    ))
}

fn check_target(rule: &CopyRule, target: &TableDescription) -> Result<(), String> {
    let global = target
        .global_secondary_indexes()
        .iter()
        .map(|index| (index.index_name(), index.key_schema()));
    let local = target
        .local_secondary_indexes()
        .iter()
        .map(|index| (index.index_name(), index.key_schema()));
    let indexes: BTreeMap<&str, &[KeySchemaElement]> =
        global.chain(local).filter_map(|(name, schema)| Some((name?, schema))).collect();
    let Some(schema) = indexes.get(rule.index.as_str()) else {
        let names: Vec<&str> = indexes.into_keys().collect();
        return Err(format!(
            "table `{}` has no index `{}`; it has: {}",
            rule.target,
            rule.index,
            names.join(", ")
        ));
    };
    let found = partition_key(schema).unwrap_or_default();
    if found != rule.index_key {
        return Err(format!(
            "index `{}` has the partition key `{found}`, the rule says `{}`",
            rule.index, rule.index_key
        ));
    }
    let keys: Vec<&str> =
        target.key_schema().iter().map(KeySchemaElement::attribute_name).collect();
    match rule.attributes.keys().find(|name| keys.contains(&name.as_str())) {
        Some(name) => Err(format!(
            "`{name}` is a key attribute of table `{}` and cannot be copied to",
            rule.target
        )),
        None => Ok(()),
    }
}

/// Names and values of an expression, by placeholders.
#[derive(Default)]
struct Expression {
    names: HashMap<String, String>,
    values: HashMap<String, SdkValue>,
}

impl Expression {
    fn name(&mut self, placeholder: &str, name: &str) {
        self.names.insert(placeholder.to_owned(), name.to_owned());
    }

    fn value(&mut self, placeholder: &str, value: SdkValue) {
        self.values.insert(placeholder.to_owned(), value);
    }

    /// The condition under which a copy is written.
    fn condition(
        &mut self,
        rule: &CopyRule,
        mark: &Mark,
        guard: &CopyGuard,
    ) -> Result<String, Failure> {
        let key = model::json::attribute_value_from_str(&mark.origin);
        let key = key.map_err(|error| Failure::Retry(format!("an origin's key: {error}")))?;
        self.name("#key", &rule.index_key);
        self.value(":key", to_sdk(&key));
        self.name("#mark", &mark_attribute(&rule.name));
        let older = match guard {
            CopyGuard::Older => {
                self.value(":prefix", SdkValue::S(Mark::prefix(&mark.origin)));
                self.value(":mark", SdkValue::S(mark.text()));
                "(attribute_not_exists(#mark) OR NOT begins_with(#mark, :prefix) OR #mark < :mark)"
            }
            CopyGuard::Seen(None) => "attribute_not_exists(#mark)",
            CopyGuard::Seen(Some(seen)) => {
                self.value(":seen", to_sdk(seen));
                "#mark = :seen"
            }
        };
        Ok(format!("#key = :key AND {older}"))
    }

    /// The update that sets values and mark.
    fn update(&mut self, values: &BTreeMap<String, Option<AttributeValue>>, mark: &Mark) -> String {
        self.value(":mark", SdkValue::S(mark.text()));
        let (mut set, mut remove) = (vec!["#mark = :mark".to_owned()], Vec::new());
        for (number, (name, value)) in values.iter().enumerate() {
            self.name(&format!("#n{number}"), name);
            match value {
                Some(value) => {
                    self.value(&format!(":v{number}"), to_sdk(value));
                    set.push(format!("#n{number} = :v{number}"));
                }
                None => remove.push(format!("#n{number}")),
            }
        }
        let set = format!("SET {}", set.join(", "));
        if remove.is_empty() { set } else { format!("{set} REMOVE {}", remove.join(", ")) }
    }
}

impl CopyTables for DynamoDbCopies {
    async fn job(&self, origin: &Origin) -> Result<Option<Item>, Failure> {
        let key = HashMap::from([(JOB_KEY.to_owned(), SdkValue::S(origin.job_key()))]);
        self.get(&self.jobs_table, key).await
    }

    async fn put_job(&self, job: &Item, found: u64) -> Result<WriteOutcome, Failure> {
        let request = self.client.put_item().table_name(&self.jobs_table);
        let request = request.set_item(Some(to_sdk_item(job)));
        let request = if found == 0 {
            request
                .condition_expression("attribute_not_exists(#guard)")
                .expression_attribute_names("#guard", JOB_KEY)
        } else {
            request
                .condition_expression("#guard = :guard")
                .expression_attribute_names("#guard", JOB_REVISION)
                .expression_attribute_values(":guard", SdkValue::N(found.to_string()))
        };
        match request.send().await {
            Ok(_) => Ok(WriteOutcome::Written),
            Err(error) if is_condition_failed(error.code()) => Ok(WriteOutcome::GuardFailed),
            Err(error) => Err(failed(&self.jobs_table, JOBS_TABLE, "PutItem", &error)),
        }
    }

    async fn page(
        &self,
        rule: &CopyRule,
        origin: &AttributeValue,
        after: Option<&Item>,
    ) -> Result<CopyPage, Failure> {
        let answer = self
            .client
            .query()
            .table_name(&rule.target)
            .index_name(&rule.index)
            .key_condition_expression("#key = :key")
            .expression_attribute_names("#key", &rule.index_key)
            .expression_attribute_values(":key", to_sdk(origin))
            .set_exclusive_start_key(after.map(to_sdk_item))
            .limit(PAGE_COPIES)
            .send()
            .await
            .map_err(|error| failed(&rule.target, FAN_OUT_RULES, "Query", &error))?;
        let keys = answer.items.unwrap_or_default().into_iter().map(|item| self.key_of(rule, item));
        let keys = keys.collect::<Result<_, _>>()?;
        let next = answer.last_evaluated_key.map(from_sdk_item).transpose()?;
        Ok(CopyPage { keys, next })
    }

    async fn origin(&self, rule: &CopyRule, key: &AttributeValue) -> Result<Option<Item>, Failure> {
        let key = HashMap::from([(rule.origin_key.clone(), to_sdk(key))]);
        self.get(&rule.origin, key).await
    }

    async fn copy(&self, rule: &CopyRule, key: &Item) -> Result<Option<Item>, Failure> {
        self.get(&rule.target, to_sdk_item(key)).await
    }

    async fn write(
        &self,
        rule: &CopyRule,
        key: &Item,
        update: &Update,
        guard: &CopyGuard,
    ) -> Result<WriteOutcome, Failure> {
        let mut expression = Expression::default();
        let key = Some(to_sdk_item(key));
        let sent = match update {
            Update::Set { values, mark } => {
                let condition = expression.condition(rule, mark, guard)?;
                let text = expression.update(values, mark);
                let request = self.client.update_item().table_name(&rule.target).set_key(key);
                let request = request
                    .condition_expression(condition)
                    .update_expression(text)
                    .set_expression_attribute_names(Some(expression.names))
                    .set_expression_attribute_values(Some(expression.values));
                request.send().await.map(drop).map_err(|error| {
                    (
                        is_condition_failed(error.code()),
                        failed(&rule.target, FAN_OUT_RULES, "UpdateItem", &error),
                    )
                })
            }
            Update::Delete { mark } => {
                let condition = expression.condition(rule, mark, guard)?;
                let request = self.client.delete_item().table_name(&rule.target).set_key(key);
                let request = request
                    .condition_expression(condition)
                    .set_expression_attribute_names(Some(expression.names))
                    .set_expression_attribute_values(Some(expression.values));
                request.send().await.map(drop).map_err(|error| {
                    (
                        is_condition_failed(error.code()),
                        failed(&rule.target, FAN_OUT_RULES, "DeleteItem", &error),
                    )
                })
            }
        };
        match sent {
            Ok(()) => Ok(WriteOutcome::Written),
            Err((true, _)) => Ok(WriteOutcome::GuardFailed),
            Err((false, failure)) => Err(failure),
        }
    }

    async fn sample(&self, rule: &CopyRule, draw: u64) -> Result<Vec<Item>, Failure> {
        let segment = draw % u64::from(SAMPLE_SEGMENTS.unsigned_abs());
        let answer = self
            .client
            .scan()
            .table_name(&rule.target)
            .segment(i32::try_from(segment).unwrap_or(0))
            .total_segments(SAMPLE_SEGMENTS)
            .limit(SAMPLE_COPIES)
            .send()
            .await
            .map_err(|error| failed(&rule.target, FAN_OUT_RULES, "Scan", &error))?;
        let items = answer.items.unwrap_or_default().into_iter();
        items.map(|item| self.key_of(rule, item)).collect()
    }
}
