//! Parses the PartiQL statement of a request, and plans its read or write.
//!
//! The crate `expression` has the grammar. `ExecuteStatement`, `BatchExecuteStatement` and
//! `ExecuteTransaction` execute the plans.

use std::fmt;
use std::sync::Arc;

use expression::partiql::{Returning, Statement, StatementText, Where};
use expression::{Condition, LegacyCondition, LegacyOperator, Update};
use model::key::KeyError;
use model::limits::{PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX};
use model::{AttributeValue, Item, KeySchema, PrimaryKey};
use partition::{Table, TableId, Write, WriteAction, Written, check_put};

use super::constraints::{Constraints, is_name};
use super::error::ApiError;
use super::parameters::Parameters;
use super::put_item::check_size;
use super::tables;
use super::update_item::check_leaves_key;
use super::wording::Checked;
use crate::store::Store;

/// The maximum length of a statement in characters, inclusive.
const STATEMENT_LENGTH_MAX: usize = 8192;
/// The error for `EXISTS` in an operation that does not support it.
pub(crate) const EXISTS_MISPLACED: &str =
    "EXISTS can only be used in ExecuteTransaction write requests.";
/// The error for `EXISTS` with conditions only on the key.
const EXISTS_NEEDS_CONDITION: &str =
    "EXISTS() must contain a single item read with additional condition";
/// The error for an index that statements cannot read.
pub(crate) const SEVERAL_KEY_ATTRIBUTES: &str = "PartiQL statements cannot be executed on tables with multi-attribute HASH keys or multi-attribute RANGE keys.";
/// The error for a write without a complete key.
const KEY_REQUIRED: &str =
    "Where clause does not contain a mandatory equality on all key attributes";

/// `Statement` and `Parameters`, as they were sent.
pub(crate) struct StatementParameters<'j> {
    pub(crate) text: Option<&'j str>,
    values: Option<Vec<Checked<AttributeValue>>>,
    return_on_failure: Option<&'j str>,
}

impl<'j> StatementParameters<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        Ok(Self {
            text: parameters.string("Statement")?,
            values: parameters.value_list("Parameters")?,
            return_on_failure: parameters.string("ReturnValuesOnConditionCheckFailure")?,
        })
    }

    /// Adds the failures of the statement. `at` is the path of the statement in the request, which
    /// is empty or ends with a dot.
    pub(crate) fn constrain(&self, constraints: &mut Constraints, at: fmt::Arguments<'_>) {
        constraints.one_of(
            format_args!("{at}returnValuesOnConditionCheckFailure"),
            self.return_on_failure,
            super::constraints::RETURN_VALUES_ON_FAILURE,
        );
        constraints.required(format_args!("{at}statement"), self.text.is_some());
        if let Some(text) = self.text {
            constraints.length(format_args!("{at}statement"), text, 1, STATEMENT_LENGTH_MAX);
        }
        if let Some(values) = &self.values {
            let at = format_args!("{at}parameters");
            constraints.length_at_least(at, &"[]", values.len(), 1);
        }
    }

    /// Returns a hash of the statement and the values of its parameters.
    pub(crate) fn fingerprint(&self) -> u64 {
        let text = format!("{:?} {:?}", self.text, self.values);
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }

    pub(crate) fn returns_item_on_failure(&self) -> bool {
        self.return_on_failure == Some("ALL_OLD")
    }

    /// Checks the values of all parameters.
    pub(crate) fn check_values(&self) -> Result<(), ApiError> {
        let mut values = self.values.iter().flatten();
        values.find_map(|value| value.as_ref().err()).map_or(Ok(()), |wrong| Err(wrong.older()))
    }

    pub(crate) fn parse(&self) -> Result<Statement, ApiError> {
        Self { values: self.values.clone(), ..*self }.parse_after(&mut None)
    }

    /// Parses the statement, or reuses the parsed form in `earlier` if the statement is the same.
    /// Stores the parsed form in `earlier` for the next call.
    pub(crate) fn parse_after(
        self,
        earlier: &mut Option<StatementText<'j>>,
    ) -> Result<Statement, ApiError> {
        let values: Vec<AttributeValue> = self
            .values
            .into_iter()
            .flatten()
            .collect::<Result<_, _>>()
            .map_err(|wrong| wrong.older())?;
        let text = self.text.unwrap_or_default();
        let is_known = earlier.as_ref().is_some_and(|earlier| earlier.is(text));
        let read = match earlier {
            Some(earlier) if is_known => earlier.with(values),
            _ => StatementText::new(text).and_then(|new| earlier.insert(new).with(values)),
        };
        let statement = read.map_err(|error| ApiError::validation(error.to_string()))?;
        check_source(&statement)?;
        Ok(statement)
    }
}

/// Checks that the table and index names of a statement are valid. Does not check `INSERT`, because
/// DynamoDB looks up its table without this check.
fn check_source(statement: &Statement) -> Result<(), ApiError> {
    let (table, index) = match statement {
        Statement::Select(select) | Statement::Exists(select) => {
            (&select.table, select.index.as_ref())
        }
        Statement::Update { table, .. } | Statement::Delete { table, .. } => (table, None),
        Statement::Insert { .. } => return Ok(()),
    };
    let is_right = |name: &String| name.starts_with("arn:") || is_name(name);
    if is_right(table) && index.is_none_or(is_right) {
        return Ok(());
    }
    Err(ApiError::validation(
        "Table name should be within the length [3, 255] and only contain 'a-z', 'A-Z', '0-9', '-', '_', '.'.",
    ))
}

/// The reason why a statement cannot be planned.
pub(crate) enum PlanError {
    /// The statement is invalid, so the entire request fails.
    Statement(ApiError),
    /// The table does not exist, or the key does not match its key schema. In a transaction, this
    /// error becomes the cancellation reason of the operation.
    Item(ApiError),
    /// The statement does not determine the item to be written. In a transaction, DynamoDB uses
    /// another error message.
    KeyMissing,
}

impl From<ApiError> for PlanError {
    fn from(error: ApiError) -> Self {
        Self::Statement(error)
    }
}

impl From<KeyError> for PlanError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Empty { .. } => Self::Statement(error.into()),
            other => Self::Item(other.into()),
        }
    }
}

impl From<PlanError> for ApiError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Statement(error) | PlanError::Item(error) => error,
            PlanError::KeyMissing => Self::validation(KEY_REQUIRED),
        }
    }
}

/// The planned write of a statement.
pub(crate) struct StatementWrite {
    pub(crate) write: Write,
    pub(crate) context: WriteContext,
}

/// The data of a write statement that the response requires.
pub(crate) struct WriteContext {
    pub(crate) table: Arc<Table>,
    /// The name of the table, as the statement spells it.
    pub(crate) name: String,
    pub(crate) is_insert: bool,
    returning: Option<Returning>,
    /// The update, if the response contains only the attributes that it changed; otherwise `None`.
    update: Option<Update>,
}

impl StatementWrite {
    /// Plans the write of a statement.
    ///
    /// # Errors
    /// The statement is invalid. A `SELECT` or `EXISTS` is an internal error.
    pub(crate) fn of(
        store: &Store,
        statement: Statement,
        return_on_failure: bool,
    ) -> Result<Self, PlanError> {
        match statement {
            Statement::Insert { table, item } => insert(store, table, &item, return_on_failure),
            Statement::Update { table: name, update, condition, returning } => {
                let table = tables::find_for_items(store, &name).map_err(PlanError::Item)?;
                check_leaves_key(&update, &table)?;
                let key = key_of(&condition, &table.key_schema)?;
                let is_part = returning.is_some_and(|returning| !returning.all);
                let changed = is_part.then(|| update.clone());
                let action = WriteAction::Update(update);
                // `condition` includes the conditions on the key. The condition is false for an
                // item that does not exist, so the update creates no item.
                let condition = condition.into_condition();
                let mut write = write_of(&table, key, action, condition, return_on_failure);
                write.return_old = returning.is_some_and(|returning| !returning.new);
                write.return_new = returning.is_some_and(|returning| returning.new);
                let context =
                    WriteContext { table, name, is_insert: false, returning, update: changed };
                Ok(Self { write, context })
            }
            Statement::Delete { table: name, condition, returning } => {
                if let Some(wrong) = returning.filter(|returning| !returning.all || returning.new) {
                    return Err(PlanError::Statement(ApiError::validation(format!(
                        "Invalid returning clause: {}. Only RETURNING ALL OLD * is allowed in DELETE statements.",
                        wrong.text()
                    ))));
                }
                let table = tables::find_for_items(store, &name).map_err(PlanError::Item)?;
                let key = key_of(&condition, &table.key_schema)?;
                let names: Vec<&str> = key_names(&table.key_schema).collect();
                let condition = condition.into_condition_beside_key(&names);
                let mut write =
                    write_of(&table, key, WriteAction::Delete, condition, return_on_failure);
                write.return_old = returning.is_some();
                let context =
                    WriteContext { table, name, is_insert: false, returning, update: None };
                Ok(Self { write, context })
            }
            Statement::Exists(select) => {
                let table =
                    tables::find_for_items(store, &select.table).map_err(PlanError::Item)?;
                let key = first_key_of(&select.condition, &table.key_schema)?;
                let names: Vec<&str> = key_names(&table.key_schema).collect();
                if select.condition.is_only_of(&names) {
                    return Err(ApiError::validation(EXISTS_NEEDS_CONDITION).into());
                }
                let condition = select.condition.into_condition();
                let write = write_of(&table, key, WriteAction::Check, condition, return_on_failure);
                let name = select.table;
                let context =
                    WriteContext { table, name, is_insert: false, returning: None, update: None };
                Ok(Self { write, context })
            }
            Statement::Select(_) => Err(ApiError::defect("a read was planned as a write").into()),
        }
    }

    /// Returns the table and the key of the item to be written.
    pub(crate) fn item(&self) -> (TableId, &PrimaryKey) {
        (self.write.table, &self.write.key)
    }
}

impl WriteContext {
    /// Returns the item that `RETURNING` requests; `None` if no item is requested or available.
    pub(crate) fn returned(&self, written: &Written) -> Option<Item> {
        let returning = self.returning?;
        let image = if returning.new { &written.new } else { &written.old };
        match (image, &self.update) {
            (Some(image), Some(update)) => {
                Some(update.updated_attributes(image)).filter(|item| !item.is_empty())
            }
            (image, _) => image.clone(),
        }
    }

    pub(crate) fn has_returning(&self) -> bool {
        self.returning.is_some()
    }
}

fn insert(
    store: &Store,
    name: String,
    item: &Item,
    return_on_failure: bool,
) -> Result<StatementWrite, PlanError> {
    check_size(item.size())?;
    let table = tables::find_for_items(store, &name).map_err(PlanError::Item)?;
    let key = table.key_schema.key_of_item(item)?;
    check_put(&table, item).map_err(|refusal| ApiError::validation(refusal.text))?;
    let absent = LegacyCondition {
        attribute: table.key_schema.partition.name.clone(),
        operator: LegacyOperator::Null,
        values: Vec::new(),
    };
    let condition = Some(Condition::of_legacy(vec![absent], false));
    let write = write_of(&table, key, WriteAction::put(item), condition, return_on_failure);
    let context = WriteContext { table, name, is_insert: true, returning: None, update: None };
    Ok(StatementWrite { write, context })
}

fn write_of(
    table: &Table,
    key: PrimaryKey,
    action: WriteAction,
    condition: Option<Condition>,
    return_on_failure: bool,
) -> Write {
    Write {
        table: table.id,
        key,
        action,
        condition: condition.map(Box::new),
        return_old: false,
        return_new: false,
        return_on_failure,
    }
}

fn key_names(schema: &KeySchema) -> impl Iterator<Item = &str> {
    schema.attributes().map(|attribute| attribute.name.as_str())
}

/// Returns the key that the conditions determine. There must be exactly one value for each key attribute.
fn key_of(condition: &Where, schema: &KeySchema) -> Result<PrimaryKey, PlanError> {
    for name in key_names(schema) {
        let mut values = condition.equal_to(name);
        let value = values.next().ok_or(PlanError::KeyMissing)?;
        if values.any(|other| other != value) {
            return Err(PlanError::Item(ApiError::validation(format!(
                "Multiple conditions on same key {name}. Only single item Update/Insert/Delete are supported"
            ))));
        }
    }
    first_key_of(condition, schema)
}

/// Returns the key from the first condition on each key attribute. Used for `EXISTS`.
fn first_key_of(condition: &Where, schema: &KeySchema) -> Result<PrimaryKey, PlanError> {
    let mut key = Item::new();
    for name in key_names(schema) {
        let value = condition.equal_to(name).next();
        let value = value.ok_or_else(|| ApiError::validation(EXISTS_NEEDS_CONDITION))?;
        key.insert(name.to_owned(), value.clone());
    }
    Ok(schema.key_of_parameter(&key)?)
}

/// Refuses key values that exceed the size limit of keys. Must be called before the conditions are
/// split into up to 1,000 reads, because each read copies its values, and a value may have megabytes.
pub(crate) fn check_key_sizes(
    condition: &Where,
    partition: &str,
    sort: Option<&str>,
) -> Result<(), KeyError> {
    for (name, value) in condition.key_values(partition, sort) {
        let (bytes_max, too_long) = if name == partition {
            (PARTITION_KEY_BYTES_MAX, KeyError::PartitionKeyTooLong)
        } else {
            (SORT_KEY_BYTES_MAX, KeyError::SortKeyTooLong)
        };
        if value.size() > bytes_max {
            return Err(too_long);
        }
    }
    Ok(())
}

/// Returns the key if a `SELECT` reads one item and has conditions only on the key. Returns the error
/// `otherwise` for any other `SELECT`.
pub(crate) fn only_key_of(
    condition: &Where,
    schema: &KeySchema,
    otherwise: &str,
) -> Result<PrimaryKey, PlanError> {
    let names: Vec<&str> = key_names(schema).collect();
    let says_once = |name: &&str| {
        let mut values = condition.equal_to(name);
        values.next().is_some_and(|value| values.all(|other| other == value))
    };
    if condition.is_only_of(&names) && names.iter().all(says_once) {
        return first_key_of(condition, schema);
    }
    // DynamoDB reports an invalid read before it reports that the `SELECT` is not limited to one
    // item.
    let sort = schema.sort.as_ref().map(|sort| sort.name.as_str());
    check_key_sizes(condition, &schema.partition.name, sort)?;
    let refusal = condition.reads(&schema.partition.name, sort).err();
    let text = refusal.map_or_else(|| otherwise.to_owned(), |refusal| refusal.to_string());
    Err(ApiError::validation(text).into())
}
