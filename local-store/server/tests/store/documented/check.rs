//! Executes operations in the store and in the model, and compares the results.

use std::collections::BTreeMap;

use model::Item;
use model::json::{self, Json};
use proptest::test_runner::TestCaseError;
use server::store::Store;

use super::answer::{call, error_type, item, items, message, number, reasons, succeed};
use super::condition::{holds, project};
use super::expression::{Action, Writer};
use super::request::{
    Operation, Read, Returns, SortCondition, get_parameters, item_json, key_condition,
    read_parameters, write_operation, write_parameters,
};
use super::state::{Change, Refusal, State, Write, Written};
use super::table::{KINDS, KeyAttribute, KeyNumbers, KeyValue, key_value};
use super::{statement, stream};

pub(super) type Outcome = Result<(), TestCaseError>;

/// The maximum number of pages of one Query, so that an endless Query fails the test.
const PAGES_MAX: usize = 1000;

/// The execution of one history on its own tables.
pub(super) struct Play<'s> {
    pub(super) store: &'s Store,
    pub(super) tables: Vec<String>,
    pub(super) state: State,
}

/// Executes a history on new tables, and deletes the tables.
pub(super) async fn play(store: &Store, number: u64, history: &[Operation]) -> Outcome {
    let tables: Vec<String> = (0..KINDS.len()).map(|kind| format!("t{number}-{kind}")).collect();
    for (kind, name) in KINDS.iter().zip(&tables) {
        succeed(store, "DynamoDB_20120810.CreateTable", &kind.create(name), |_| ()).await?;
    }
    let mut play = Play { store, tables, state: State::default() };
    let outcome = play.carry_out_all(history).await;
    for name in &play.tables {
        let body = format!(r#"{{"TableName":"{name}"}}"#);
        succeed(store, "DynamoDB_20120810.DeleteTable", &body, |_| ()).await?;
    }
    outcome
}

pub(super) fn fail<T>(
    what: &str,
    expected: &impl std::fmt::Debug,
    got: &impl std::fmt::Debug,
) -> Result<T, TestCaseError> {
    Err(TestCaseError::fail(format!("{what}\nexpected {expected:?}\ngot {got:?}")))
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, got: &T) -> Outcome {
    if expected == got { Ok(()) } else { fail(what, expected, got) }
}

/// Returns the item that the response to a successful write contains.
fn returned(write: &Write, written: &Written, returns: Returns) -> Option<Item> {
    let changed = |image: &Option<Item>| {
        let Change::Update(actions) = &write.change else { return None };
        let mut item = image.clone()?;
        let roots: Vec<&str> = actions.iter().map(Action::root).collect();
        item.0.retain(|name, _| roots.contains(&name.as_str()));
        Some(item)
    };
    let image = match returns {
        Returns::None => None,
        Returns::AllOld => written.old.clone(),
        Returns::AllNew => written.new.clone(),
        Returns::UpdatedOld => changed(&written.old),
        Returns::UpdatedNew => changed(&written.new),
    };
    image.filter(|item| !item.is_empty())
}

fn returns_text(returns: Returns) -> &'static str {
    match returns {
        Returns::None => "NONE",
        Returns::AllOld => "ALL_OLD",
        Returns::AllNew => "ALL_NEW",
        Returns::UpdatedOld => "UPDATED_OLD",
        Returns::UpdatedNew => "UPDATED_NEW",
    }
}

impl Play<'_> {
    async fn carry_out_all(&mut self, history: &[Operation]) -> Outcome {
        for operation in history {
            self.carry_out(operation).await?;
        }
        for table in 0..KINDS.len() {
            let all = Read {
                table,
                index: usize::MAX,
                filter: None,
                projection: None,
                limit: None,
                all_attributes: false,
                count_only: false,
            };
            let settled = self.store.indexes_settled().await;
            settled.map_err(|error| TestCaseError::fail(error.to_string()))?;
            self.scan(&all, None).await?;
            stream::check(self, table).await?;
        }
        Ok(())
    }

    async fn carry_out(&mut self, operation: &Operation) -> Outcome {
        // With several arcs, the store updates indexes later than the table; the model updates them
        // immediately.
        self.store
            .indexes_settled()
            .await
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        match operation {
            Operation::Write(write, returns) => self.write(write, *returns).await,
            Operation::Get { table, key, projection, consistent } => {
                let mut body = get_parameters(*table, *key, projection.as_ref(), &self.tables);
                body.push_str(&format!(r#","ConsistentRead":{consistent}"#));
                let found = self.succeed("GetItem", &body, |answer| item(answer, "Item")).await?;
                let expected = self.state.get(*table, *key).map(|item| match projection {
                    Some(paths) => project(item, paths),
                    None => item.clone(),
                });
                same(&body, &expected, &found)
            }
            Operation::Query { read, partition, sort, forward } => {
                self.query(read, *partition, *sort, *forward).await
            }
            Operation::Scan { read, segments } => self.scan(read, *segments).await,
            Operation::BatchWrite(writes) => self.batch_write(writes).await,
            Operation::BatchGet(keys) => self.batch_get(keys).await,
            Operation::TransactWrite(writes) => self.transact_write(writes).await,
            Operation::TransactGet(keys) => self.transact_get(keys).await,
        }
    }

    async fn succeed<T>(
        &self,
        operation: &str,
        parameters: &str,
        read: impl FnOnce(&Json<'_>) -> T,
    ) -> Result<T, TestCaseError> {
        let target = format!("DynamoDB_20120810.{operation}");
        succeed(self.store, &target, &format!("{{{parameters}}}"), read).await
    }

    async fn write(&mut self, write: &Write, returns: Returns) -> Outcome {
        let body = format!(
            r#"{{{},"ReturnValues":"{}","ReturnValuesOnConditionCheckFailure":"ALL_OLD"}}"#,
            write_parameters(write, &self.tables),
            returns_text(returns)
        );
        let response = call(self.store, write_operation(write), &body).await;
        let what = format!("{} {body}\nanswered {}", write_operation(write), response.body);
        let before = self.state.get(write.table, write.key).cloned();
        let tree = json::parse(response.body.as_bytes()).unwrap();
        match self.state.write(write) {
            Ok(written) => {
                same(&what, &200, &response.status)?;
                same(&what, &returned(write, &written, returns), &item(&tree, "Attributes"))
            }
            Err(Refusal::ConditionFailed) => {
                same(
                    &what,
                    &"ConditionalCheckFailedException".to_owned(),
                    &error_type(&response.body),
                )?;
                same(&what, &before, &item(&tree, "Item"))
            }
            Err(Refusal::Invalid) => {
                same(&what, &"ValidationException".to_owned(), &error_type(&response.body))
            }
        }
    }

    async fn batch_write(&mut self, writes: &[Write]) -> Outcome {
        let mut tables: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for write in writes {
            let request = match write.item() {
                Some(item) => format!(r#"{{"PutRequest":{{"Item":{}}}}}"#, item_json(&item)),
                None => {
                    let key = item_json(&write.kind().key(write.key));
                    format!(r#"{{"DeleteRequest":{{"Key":{key}}}}}"#)
                }
            };
            tables.entry(write.table).or_default().push(request);
        }
        if tables.is_empty() {
            return Ok(());
        }
        let requests: Vec<String> = tables
            .iter()
            .map(|(table, requests)| {
                format!(r#""{}":[{}]"#, self.tables[*table], requests.join(","))
            })
            .collect();
        let body = format!(r#""RequestItems":{{{}}}"#, requests.join(","));
        self.succeed("BatchWriteItem", &body, |_| ()).await?;
        for write in writes {
            if let Err(refusal) = self.state.write(write) {
                return fail("a generated batch", &"no refusal", &refusal);
            }
        }
        Ok(())
    }

    async fn batch_get(&self, keys: &[(usize, KeyNumbers)]) -> Outcome {
        let mut tables: BTreeMap<usize, Vec<KeyNumbers>> = BTreeMap::new();
        for (table, key) in keys {
            tables.entry(*table).or_default().push(*key);
        }
        let requests: Vec<String> = tables
            .iter()
            .map(|(table, keys)| {
                let keys: Vec<String> =
                    keys.iter().map(|key| item_json(&KINDS[*table].key(*key))).collect();
                format!(r#""{}":{{"Keys":[{}]}}"#, self.tables[*table], keys.join(","))
            })
            .collect();
        let body = format!(r#""RequestItems":{{{}}}"#, requests.join(","));
        let names = &self.tables;
        let found = self
            .succeed("BatchGetItem", &body, |answer| {
                let responses = answer.get("Responses").unwrap();
                tables
                    .keys()
                    .map(|table| sorted(*table, items(responses, &names[*table])))
                    .collect::<Vec<_>>()
            })
            .await?;
        let expected: Vec<Vec<Item>> = tables
            .iter()
            .map(|(table, keys)| {
                let items = keys.iter().filter_map(|key| self.state.get(*table, *key).cloned());
                sorted(*table, items.collect())
            })
            .collect();
        same(&body, &expected, &found)
    }

    async fn transact_write(&mut self, writes: &[Write]) -> Outcome {
        let operations: Vec<String> = writes
            .iter()
            .map(|write| {
                let name = write_operation(write);
                let name = name.strip_suffix("Item").unwrap_or(name);
                format!(r#"{{"{name}":{{{}}}}}"#, write_parameters(write, &self.tables))
            })
            .collect();
        // In a transaction, an update must have an expression.
        if writes.iter().any(|w| matches!(&w.change, Change::Update(actions) if actions.is_empty()))
        {
            return Ok(());
        }
        let body = format!(r#"{{"TransactItems":[{}]}}"#, operations.join(","));
        let response = call(self.store, "TransactWriteItems", &body).await;
        let what = format!("TransactWriteItems {body}\nanswered {}", response.body);
        let decided: Vec<Result<Written, Refusal>> =
            writes.iter().map(|write| self.state.decide(write)).collect();
        if decided.iter().all(Result::is_ok) {
            same(&what, &200, &response.status)?;
            for (write, written) in writes.iter().zip(decided.into_iter().flatten()) {
                self.state.make(write, &written);
            }
            return Ok(());
        }
        // An empty value for an index key does not cancel the transaction. The request fails with a
        // validation error.
        if decided.iter().any(|decision| matches!(decision, Err(Refusal::Invalid)))
            && error_type(&response.body) == "ValidationException"
        {
            return Ok(());
        }
        same(&what, &"TransactionCanceledException".to_owned(), &error_type(&response.body))?;
        let expected: Vec<String> = decided
            .iter()
            .map(|decision| match decision {
                Ok(_) => "None",
                Err(Refusal::ConditionFailed) => "ConditionalCheckFailed",
                Err(Refusal::Invalid) => "ValidationError",
            })
            .map(str::to_owned)
            .collect();
        same(&what, &expected, &reasons(&response.body))
    }

    async fn transact_get(&self, keys: &[(usize, KeyNumbers)]) -> Outcome {
        let operations: Vec<String> = keys
            .iter()
            .map(|(table, key)| {
                format!(r#"{{"Get":{{{}}}}}"#, get_parameters(*table, *key, None, &self.tables))
            })
            .collect();
        let body = format!(r#""TransactItems":[{}]"#, operations.join(","));
        let found = self
            .succeed("TransactGetItems", &body, |answer| {
                let responses = answer.get("Responses").and_then(Json::as_array).unwrap();
                responses.iter().map(|response| item(response, "Item")).collect::<Vec<_>>()
            })
            .await?;
        let expected: Vec<Option<Item>> =
            keys.iter().map(|(table, key)| self.state.get(*table, *key).cloned()).collect();
        same(&body, &expected, &found)
    }

    /// Returns the expected result of a Query or Scan: pairs of an entry and its complete item, in any
    /// order.
    fn read_of(&self, read: &Read) -> Vec<(Item, Item)> {
        match read.index() {
            Some(index) => self.state.entries(read.table, index),
            None => {
                let items = self.state.tables[read.table].items.values();
                items.map(|item| (item.clone(), item.clone())).collect()
            }
        }
    }

    async fn query(
        &self,
        read: &Read,
        partition: u8,
        sort: Option<SortCondition>,
        forward: bool,
    ) -> Outcome {
        let kind = &KINDS[read.table];
        let (hash, range) =
            read.index().map_or((kind.partition, kind.sort), |index| (index.partition, index.sort));
        let wanted = key_value(hash, partition);
        let sort = range.zip(sort);
        let parameters = read_parameters(read, &self.tables, |writer| {
            Some(key_condition(writer, (hash.0, &wanted), sort))
        }) + &format!(r#","ScanIndexForward":{forward}"#);
        let in_range = |(entry, _): &(Item, Item)| {
            entry.get(hash.0) == Some(&wanted)
                && sort.is_none_or(|(attribute, condition)| {
                    sort_matches(attribute, condition, &entry.0[attribute.0])
                })
        };
        let shown = match read.refusal() {
            Some(refusal) => {
                let response = call(self.store, "Query", &format!("{{{parameters}}}")).await;
                same(&parameters, &refusal, &message(&response.body))?;
                Vec::new()
            }
            None => {
                let mut expected: Vec<(Item, Item)> =
                    self.read_of(read).into_iter().filter(in_range).collect();
                let pages = self.pages(read, "Query", &parameters).await?;
                pages.check(read, &mut expected, &parameters)?
            }
        };
        if !read.count_only && !read.all_attributes && read.projection.is_none() {
            let mut writer = Writer::default();
            let conditions = (key_condition(&mut writer, (hash.0, &wanted), sort), writer);
            let order = (range.map_or(hash.0, |range| range.0), forward);
            let table = &self.tables[read.table];
            statement::check(self.store, read, table, conditions, order, &shown).await?;
        }
        let Some(range) = range.filter(|_| !read.count_only && read.projection.is_none()) else {
            return Ok(());
        };
        let keys: Vec<KeyValue> =
            shown.iter().filter_map(|item| KeyValue::of(item.get(range.0)?)).collect();
        let is_ordered =
            keys.is_sorted_by(|one, next| if forward { one <= next } else { one >= next });
        if is_ordered { Ok(()) } else { fail(&parameters, &"the order of the sort key", &keys) }
    }

    pub(super) async fn scan(&self, read: &Read, segments: Option<u32>) -> Outcome {
        let parameters = read_parameters(read, &self.tables, |_| None);
        let mut expected = self.read_of(read);
        let Some(total) = segments else {
            let pages = self.pages(read, "Scan", &parameters).await?;
            return pages.check(read, &mut expected, &parameters).map(|_| ());
        };
        let mut all = Pages::default();
        for segment in 0..total {
            let part = format!(r#"{parameters},"Segment":{segment},"TotalSegments":{total}"#);
            all.join(self.pages(read, "Scan", &part).await?);
        }
        all.check(read, &mut expected, &parameters).map(|_| ())
    }

    /// Reads all pages of a Query or Scan.
    async fn pages(
        &self,
        read: &Read,
        operation: &str,
        parameters: &str,
    ) -> Result<Pages, TestCaseError> {
        let mut pages = Pages::default();
        let mut start = String::new();
        for _ in 0..PAGES_MAX {
            let body = format!("{parameters}{start}");
            let (last, scanned) = self
                .succeed(operation, &body, |answer| {
                    pages.items.extend(items(answer, "Items"));
                    pages.count += number(answer, "Count");
                    let scanned = number(answer, "ScannedCount");
                    pages.scanned += scanned;
                    (item(answer, "LastEvaluatedKey"), scanned)
                })
                .await?;
            let Some(last) = last else {
                // A Query of a table without a sort key reads at most one item, so it has no next page.
                let is_key = operation == "Query" && read.index().is_none();
                let reads_one_item = is_key && KINDS[read.table].sort.is_none();
                return if reads_one_item || read.limit.is_none_or(|limit| scanned < limit) {
                    Ok(pages)
                } else {
                    fail(&body, &"a key for the next page", &scanned)
                };
            };
            same(&body, &read.limit, &Some(scanned))?;
            start = format!(r#","ExclusiveStartKey":{}"#, item_json(&last));
        }
        fail(parameters, &"an end", &pages.scanned)
    }
}

/// The results of all pages of a Query or Scan.
#[derive(Debug, Default)]
struct Pages {
    items: Vec<Item>,
    count: u64,
    scanned: u64,
}

impl Pages {
    fn join(&mut self, other: Self) {
        self.items.extend(other.items);
        self.count += other.count;
        self.scanned += other.scanned;
    }

    /// Compares all results of a Query or Scan except their order. Returns the items of the
    /// response.
    fn check(
        self,
        read: &Read,
        expected: &mut Vec<(Item, Item)>,
        what: &str,
    ) -> Result<Vec<Item>, TestCaseError> {
        same(what, &(expected.len() as u64), &self.scanned)?;
        expected.retain(|(entry, _)| {
            // A filter is evaluated on the attributes that the index projects, even if items are fetched
            // from the table.
            read.filter.as_ref().is_none_or(|filter| holds(filter, entry))
        });
        same(what, &(expected.len() as u64), &self.count)?;
        if read.count_only {
            return Ok(Vec::new());
        }
        let mut shown: Vec<Item> = expected
            .iter()
            .map(|(entry, item)| match &read.projection {
                Some(paths) => project(item, paths),
                None if read.all_attributes => item.clone(),
                None => entry.clone(),
            })
            .collect();
        let order = |items: &mut Vec<Item>| items.sort_by_cached_key(item_json);
        let mut got = self.items.clone();
        order(&mut shown);
        order(&mut got);
        same(what, &shown, &got)?;
        Ok(self.items)
    }
}

fn sorted(table: usize, mut items: Vec<Item>) -> Vec<Item> {
    items.sort_by_cached_key(|item| KINDS[table].order(item));
    items
}

fn sort_matches(
    attribute: KeyAttribute,
    condition: SortCondition,
    value: &model::AttributeValue,
) -> bool {
    let value = KeyValue::of(value).unwrap();
    let at = |number| KeyValue::of(&key_value(attribute, number)).unwrap();
    match condition {
        SortCondition::Equal(n) => value == at(n),
        SortCondition::Less(n) => value < at(n),
        SortCondition::LessOrEqual(n) => value <= at(n),
        SortCondition::Greater(n) => value > at(n),
        SortCondition::GreaterOrEqual(n) => value >= at(n),
        SortCondition::Between(low, high) => at(low) <= value && value <= at(high),
        SortCondition::BeginsWith(n) => match (&value, &at(n)) {
            (KeyValue::S(text), KeyValue::S(start)) => text.starts_with(start),
            (KeyValue::B(bytes), KeyValue::B(start)) => bytes.starts_with(start),
            (value, number) => value == number,
        },
    }
}
