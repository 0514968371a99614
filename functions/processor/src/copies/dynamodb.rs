//! The tables of origins, copies and jobs on DynamoDB. Checks the tables before they are used.
//!
//! The SDK retries single requests; this module interprets its errors.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::query::QueryOutput;
use aws_sdk_dynamodb::operation::scan::ScanOutput;
use aws_sdk_dynamodb::operation::scan::builders::ScanFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, KeySchemaElement, KeyType, StreamViewType, TableDescription,
};
use futures::{StreamExt, TryStreamExt, stream};
use model::limits::{BATCH_GET_KEYS_MAX, SCAN_SEGMENTS_MAX};
use model::{AttributeValue, Item, KeyAttributeType, json};
use rules::fan_out::{
    CopyRule, FanOut, JOB_KEY, JOB_REVISION, Mark, Origin, TableMismatch, TableShape, Update,
    check_tables, mark_attribute,
};
use tracing::warn;

use super::statements::write_of_job;
use super::{CopyGuard, CopyOutcome, CopyOutline, CopyPage, CopyTables, PAGE_COPIES, SamplePart};
use crate::failure::Failure;
use crate::settings::{FAN_OUT_RULES, JOBS_TABLE};
use crate::tables::WriteOutcome;
use crate::tables::attribute_value::{from_sdk_item, to_sdk, to_sdk_item};
use crate::tables::batch_get::batch_get;
use crate::tables::direct::{Page, answered, page_of, unreadable};
use crate::tables::dynamodb::{TableName, failure_of};
use crate::tables::statements::{StatementOutcome, Statements};

/// Maximum number of concurrent `BatchGetItem` requests: enough to hide the latency of a request.
const READS_AT_ONCE: usize = 4;
/// Approximate number of copies in a sample. A table is divided into parts with this many copies,
/// and each sample reads one part.
const SAMPLE_COPIES: u64 = 100;
/// Approximate size of a sample of large copies, in bytes: one page.
const SAMPLE_BYTES: u64 = 1024 * 1024;

/// The tables of the fan-out rules on DynamoDB.
#[derive(Clone, Debug)]
pub struct DynamoDbCopies {
    client: Client,
    jobs_table: String,
    /// Names of the key attributes, by table.
    keys: BTreeMap<String, Vec<String>>,
    /// Names of the index key attributes that are not key attributes of the table, by rule.
    beside: BTreeMap<String, Vec<String>>,
}

fn is_condition_failed(code: Option<&str>) -> bool {
    code == Some("ConditionalCheckFailedException")
}

/// Returns why DynamoDB permanently refuses a write of one copy: the copy would be too large, or
/// have a value that an index does not accept. Returns `None` for a wrong key, because a wrong key
/// concerns all copies.
fn refusal<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Option<String> {
    let error = error.as_service_error()?;
    let message = error.message().unwrap_or_default();
    let is_refused = match error.code()? {
        "ItemCollectionSizeLimitExceededException" => true,
        "ValidationException" => !message.contains("provided key element"),
        _ => false,
    };
    is_refused.then(|| message.to_owned())
}

fn failed<E>(table: &str, setting: &'static str, doing: &str, error: &SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let table = TableName { name: table.to_owned(), setting };
    failure_of(&table, doing, "the key that the rules declare", error)
}

/// Returns the names of the key attributes, partition key first.
fn key_attributes(schema: &[KeySchemaElement]) -> Vec<String> {
    let mut schema: Vec<_> = schema.iter().collect();
    schema.sort_by_key(|element| element.key_type() != &KeyType::Hash);
    schema.into_iter().map(|element| element.attribute_name().to_owned()).collect()
}

impl DynamoDbCopies {
    /// Checks that every table and index matches the rules. Sets the sort keys of the indexes in
    /// the rules.
    ///
    /// # Errors
    /// Returns what does not match, and how to correct it.
    pub async fn open(client: Client, rule: &mut FanOut) -> Result<Self, Failure> {
        let mut tables = Self {
            client,
            jobs_table: rule.jobs_table.clone(),
            keys: BTreeMap::new(),
            beside: BTreeMap::new(),
        };
        for rule in &mut rule.rules {
            let fatal = |error: TableMismatch| {
                Failure::Fatal(format!("{FAN_OUT_RULES}: rule `{}`: {error}", rule.name))
            };
            let origin = tables.describe(&rule.origin).await?;
            let target = tables.describe(&rule.target).await?;
            let target = shape_of(&target);
            for advice in check_tables(rule, &shape_of(&origin), &target).map_err(fatal)? {
                warn!(
                    rule = rule.name,
                    advice, "some copies of a rule may not follow their origins; see `advice`"
                );
            }
            rule.index_sort = target.sort_key_of(&rule.index).to_vec();
            let beside = target.indexes.get(&rule.index).into_iter().flatten();
            let beside = beside.filter(|name| !target.keys.contains(name)).cloned().collect();
            tables.beside.insert(rule.name.clone(), beside);
            tables.keys.insert(rule.target.clone(), target.keys);
        }
        Ok(tables)
    }

    async fn describe(&self, table: &str) -> Result<TableDescription, Failure> {
        let answer = self.client.describe_table().table_name(table).send().await;
        let answer =
            answer.map_err(|error| failed(table, FAN_OUT_RULES, "DescribeTable", &error))?;
        answer.table.ok_or_else(|| {
            Failure::Retry(format!("DescribeTable returned no description of table `{table}`"))
        })
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

    /// Reads items by their keys in DynamoDB JSON. Keeps only the value that `keep` returns for
    /// each item. `names` are the table's key attributes.
    async fn read<R: Send>(
        &self,
        (table, setting): (&str, &'static str),
        keys: &BTreeMap<String, Item>,
        names: &[&str],
        keep: impl Fn(Item) -> R + Copy + Send + Sync,
    ) -> Result<BTreeMap<String, R>, Failure> {
        let texts: BTreeMap<String, &String> =
            keys.iter().map(|(text, key)| (json::item_to_string(key), text)).collect();
        let wanted: Vec<&Item> = keys.values().collect();
        let chunks = wanted.chunks(BATCH_GET_KEYS_MAX);
        let reads: Vec<_> = chunks
            .map(|chunk| {
                let keys = chunk.iter().copied().cloned().collect();
                self.read_chunk((table, setting), keys, |item| {
                    let key = names.iter();
                    let key = key.filter_map(|n| Some(((*n).to_owned(), item.get(*n)?.clone())));
                    (json::item_to_string(&key.collect()), keep(item))
                })
            })
            .collect();
        let found: Vec<Vec<(String, R)>> =
            stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await?;
        let found = found.into_iter().flatten();
        Ok(found.filter_map(|(key, kept)| Some(((*texts.get(&key)?).clone(), kept))).collect())
    }

    /// Reads up to 100 items with strong consistency, and repeats the request for unprocessed keys.
    /// A response has at most 16 MB. It is freed before the next request, except for the values
    /// that `keep` returns.
    async fn read_chunk<R>(
        &self,
        (table, setting): (&str, &'static str),
        mut keys: Vec<Item>,
        keep: impl Fn(Item) -> R,
    ) -> Result<Vec<R>, Failure> {
        let mut found = Vec::new();
        // Each response must leave fewer keys than the previous response, so there are at most
        // 100 requests.
        while !keys.is_empty() {
            let failure = |error: &_| failed(table, setting, "BatchGetItem", error);
            let batch = batch_get(&self.client, table, &keys, failure).await?;
            found.extend(batch.items.into_iter().map(&keep));
            if batch.unprocessed.len() >= keys.len() {
                return Err(Failure::Retry(format!(
                    "BatchGetItem on table=`{table}`: keys remain unprocessed; the table is throttled"
                )));
            }
            keys = batch.unprocessed;
        }
        Ok(found)
    }

    /// Returns the names of the key attributes of a rule's copies.
    fn keys_of(&self, rule: &CopyRule) -> &[String] {
        self.keys.get(&rule.target).map(Vec::as_slice).unwrap_or_default()
    }

    fn copy_page(&self, rule: &CopyRule, (items, next): Page) -> CopyPage {
        let names = self.keys_of(rule);
        let beside = self.beside.get(&rule.name).map(Vec::as_slice).unwrap_or_default();
        let mut page = CopyPage { next, ..CopyPage::default() };
        for item in items {
            let (mut key, mut rest) = (Item::new(), Item::new());
            for (name, value) in item {
                if names.contains(&name) {
                    key.insert(name, value);
                } else if beside.contains(&name) {
                    rest.insert(name, value);
                }
            }
            page.keys.push(key);
            page.beside.push(rest);
        }
        page
    }

    /// Returns a scan of the keys of a rule's copies.
    fn scan(&self, rule: &CopyRule) -> ScanFluentBuilder {
        let names = self.keys_of(rule);
        let placeholders: Vec<String> = (0..names.len()).map(|n| format!("#k{n}")).collect();
        let named = placeholders.iter().cloned().zip(names.iter().cloned()).collect();
        self.client
            .scan()
            .table_name(&rule.target)
            .projection_expression(placeholders.join(", "))
            .set_expression_attribute_names(Some(named))
    }

    async fn scanned(&self, rule: &CopyRule, scan: ScanFluentBuilder) -> Result<CopyPage, Failure> {
        let (direct, answer) = answered(|| ScanOutput::builder().build());
        let sent = scan.customize().interceptor(direct).send().await;
        sent.map_err(|error| failed(&rule.target, FAN_OUT_RULES, "Scan", &error))?;
        let page = answer.read(page_of).ok_or_else(|| unreadable("Scan", &rule.target))?;
        Ok(self.copy_page(rule, page))
    }
}

/// Converts a limit to the type that requests use.
fn limit(most: usize) -> i32 {
    i32::try_from(most).unwrap_or(i32::MAX)
}

/// Returns the part of a table that a sample reads. Consecutive draws are a golden section of the
/// table apart, so twice as many draws as there are parts select each part at least once.
fn sampled_part(items: u64, bytes: u64, draw: u64) -> SamplePart {
    const GOLDEN_SECTION: u64 = 0x9E37_79B9_7F4A_7C15;
    let parts = (items / SAMPLE_COPIES).max(bytes / SAMPLE_BYTES);
    let parts = parts.clamp(1, u64::from(SCAN_SEGMENTS_MAX));
    // The multiplication does not overflow, because both factors are below 2^32.
    SamplePart { part: ((draw.wrapping_mul(GOLDEN_SECTION) >> 32) * parts) >> 32, parts }
}

/// Returns the properties of a table that must match the rules.
fn shape_of(table: &TableDescription) -> TableShape {
    let view = table.stream_specification().and_then(|stream| stream.stream_view_type());
    let global = table.global_secondary_indexes().iter();
    let global = global.map(|index| (index.index_name(), index.key_schema()));
    let local = table.local_secondary_indexes().iter();
    let local = local.map(|index| (index.index_name(), index.key_schema()));
    let indexes = global
        .chain(local)
        .filter_map(|(name, schema)| Some((name?.to_owned(), key_attributes(schema))));
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

/// The names and values of a DynamoDB expression, by placeholder.
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

    /// Returns the condition of a write of a copy.
    fn condition(
        &mut self,
        rule: &CopyRule,
        mark: &Mark,
        guard: &CopyGuard,
    ) -> Result<String, Failure> {
        let key = json::attribute_value_from_str(&mark.origin);
        let key = key.map_err(|error| {
            Failure::Retry(format!("cannot parse the key of an origin: {error}"))
        })?;
        self.name("#key", &rule.index_key);
        self.value(":key", to_sdk(&key));
        self.name("#mark", &mark_attribute(&rule.name));
        let older = match guard {
            CopyGuard::Older => {
                self.value(":prefix", SdkValue::S(Mark::prefix(&mark.origin)));
                self.value(":mark", SdkValue::S(mark.text()));
                "(attribute_not_exists(#mark) OR NOT begins_with(#mark, :prefix) OR #mark < :mark)"
            }
            CopyGuard::MarkUnchanged(None) => "attribute_not_exists(#mark)",
            CopyGuard::MarkUnchanged(Some(seen)) => {
                self.value(":seen", to_sdk(seen));
                "#mark = :seen"
            }
        };
        Ok(format!("#key = :key AND {older}"))
    }

    /// Returns the update expression that sets the values and the mark.
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
        most: usize,
    ) -> Result<CopyPage, Failure> {
        let (direct, answer) = answered(|| QueryOutput::builder().build());
        self.client
            .query()
            .table_name(&rule.target)
            .index_name(&rule.index)
            .key_condition_expression("#key = :key")
            .expression_attribute_names("#key", &rule.index_key)
            .expression_attribute_values(":key", to_sdk(origin))
            .set_exclusive_start_key(after.map(to_sdk_item))
            .limit(limit(most))
            .customize()
            .interceptor(direct)
            .send()
            .await
            .map_err(|error| failed(&rule.target, FAN_OUT_RULES, "Query", &error))?;
        let page = answer.read(page_of).ok_or_else(|| unreadable("Query", &rule.target))?;
        Ok(self.copy_page(rule, page))
    }

    async fn jobs(&self, origins: &BTreeSet<Origin>) -> Result<BTreeMap<Origin, Item>, Failure> {
        let key = |origin: &Origin| Item::new().with(JOB_KEY, origin.job_key());
        let keys = origins.iter().map(|origin| (origin.job_key(), key(origin))).collect();
        let mut found =
            self.read((&self.jobs_table, JOBS_TABLE), &keys, &[JOB_KEY], |job| job).await?;
        let jobs = origins.iter().filter_map(|o| Some((o.clone(), found.remove(&o.job_key())?)));
        Ok(jobs.collect())
    }

    async fn origins(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, AttributeValue>,
    ) -> Result<BTreeMap<String, Item>, Failure> {
        let key = |value: &AttributeValue| Item::new().with(&rule.origin_key, value.clone());
        let keys = keys.iter().map(|(text, value)| (text.clone(), key(value))).collect();
        let table = (rule.origin.as_str(), FAN_OUT_RULES);
        self.read(table, &keys, &[&rule.origin_key], |origin| origin).await
    }

    async fn copies(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> Result<BTreeMap<String, Item>, Failure> {
        let names: Vec<&str> = self.keys_of(rule).iter().map(String::as_str).collect();
        self.read((&rule.target, FAN_OUT_RULES), keys, &names, |copy| copy).await
    }

    async fn glimpses(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> Result<BTreeMap<String, CopyOutline>, Failure> {
        let names: Vec<&str> = self.keys_of(rule).iter().map(String::as_str).collect();
        let table = (rule.target.as_str(), FAN_OUT_RULES);
        self.read(table, keys, &names, |copy| CopyOutline::of(rule, copy)).await
    }

    async fn write(
        &self,
        rule: &CopyRule,
        key: &Item,
        update: &Update,
        guard: &CopyGuard,
    ) -> Result<CopyOutcome, Failure> {
        let mut expression = Expression::default();
        let key = Some(to_sdk_item(key));
        match update {
            Update::Set { values, mark } => {
                let condition = expression.condition(rule, mark, guard)?;
                let text = expression.update(values, mark);
                let request = self.client.update_item().table_name(&rule.target).set_key(key);
                let request = request
                    .condition_expression(condition)
                    .update_expression(text)
                    .set_expression_attribute_names(Some(expression.names))
                    .set_expression_attribute_values(Some(expression.values));
                outcome_of(rule, "UpdateItem", request.send().await)
            }
            Update::Delete { mark } => {
                let condition = expression.condition(rule, mark, guard)?;
                let request = self.client.delete_item().table_name(&rule.target).set_key(key);
                let request = request
                    .condition_expression(condition)
                    .set_expression_attribute_names(Some(expression.names))
                    .set_expression_attribute_values(Some(expression.values));
                outcome_of(rule, "DeleteItem", request.send().await)
            }
        }
    }

    async fn write_some(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        update: &Update,
    ) -> Vec<Option<CopyOutcome>> {
        let statement = keys.first().and_then(|key| write_of_job(rule, key, update));
        let mut statements = Statements::default();
        let all = statement
            .and_then(|written| keys.iter().try_for_each(|key| written.push(&mut statements, key)));
        if all.is_none() {
            return vec![None; keys.len()];
        }
        // If a statement failed, a separate write finds the cause.
        let outcome = |outcome| match outcome {
            StatementOutcome::Done => Some(CopyOutcome::Written),
            StatementOutcome::ConditionFailed => Some(CopyOutcome::GuardFailed),
            StatementOutcome::Failed => None,
        };
        statements.send(&self.client).await.into_iter().map(outcome).collect()
    }

    async fn all(&self, rule: &CopyRule, after: Option<&Item>) -> Result<CopyPage, Failure> {
        let scan = self.scan(rule).set_exclusive_start_key(after.map(to_sdk_item));
        self.scanned(rule, scan.limit(limit(PAGE_COPIES))).await
    }

    async fn part(&self, rule: &CopyRule, draw: u64) -> Result<SamplePart, Failure> {
        // On AWS the item count is updated about every six hours, which is accurate enough.
        let table = self.describe(&rule.target).await?;
        let known = |number: Option<i64>| number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        Ok(sampled_part(known(table.item_count()), known(table.table_size_bytes()), draw))
    }

    async fn sample(
        &self,
        rule: &CopyRule,
        SamplePart { part, parts }: SamplePart,
        after: Option<&Item>,
        most: usize,
    ) -> Result<CopyPage, Failure> {
        let number = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
        let scan = self.scan(rule).segment(number(part)).total_segments(number(parts));
        let scan = scan.set_exclusive_start_key(after.map(to_sdk_item));
        self.scanned(rule, scan.limit(limit(most))).await
    }
}

/// Converts the response to a write of one copy to the outcome of the write.
fn outcome_of<O, E>(
    rule: &CopyRule,
    doing: &str,
    sent: Result<O, SdkError<E>>,
) -> Result<CopyOutcome, Failure>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let Err(error) = sent else { return Ok(CopyOutcome::Written) };
    if is_condition_failed(error.code()) {
        return Ok(CopyOutcome::GuardFailed);
    }
    match refusal(&error) {
        Some(reason) => Ok(CopyOutcome::Refused(reason)),
        None => Err(failed(&rule.target, FAN_OUT_RULES, doing, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn samples_come_through_the_whole_table() {
        for (items, bytes, expected) in [
            (0, 0, 1),
            (99, 99 << 10, 1),
            (2_155, 2_155 << 10, 21),
            (123_456, 0, 1234),
            (1 << 40, 1 << 50, 1 << 20),
            // A page has 1 MB, so a part has fewer copies if the copies are large.
            (2_000, 2_000 * (390 << 10), 761),
            (50, 50 * (390 << 10), 19),
        ] {
            let parts = sampled_part(items, bytes, 7).parts;
            assert_eq!(parts, u64::min(expected, u64::from(SCAN_SEGMENTS_MAX)));
            // Draws begin at the current number of minutes since 1970, as in a function.
            let draws = 29_920_000..29_920_000 + 2 * parts;
            let seen: BTreeSet<u64> =
                draws.map(|draw| sampled_part(items, bytes, draw).part).collect();
            assert_eq!(seen, (0..parts).collect(), "{parts}");
        }
    }
}
