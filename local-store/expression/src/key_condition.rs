//! Key conditions: the partition key and the range of sort keys that a query selects.
//!
//! A [`KeyExpression`] is checked without a key schema, because DynamoDB checks it before it looks
//! up the table. [`KeyExpression::resolve`] then checks it against a key schema.

use model::key::KeyError;
use model::limits::{PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX};
use model::{AttributeValue, IndexKeySchema, KeyAttribute, KeySchema, KeyValue};
use serde::{Deserialize, Serialize};

use crate::check::check_condition;
use crate::comparator::Comparator;
use crate::error::{ExpressionError, ExpressionKind};
use crate::parser;
use crate::placeholders::Placeholders;
use crate::resolve::Resolver;
use crate::syntax::{Node, Steps};

const KIND: ExpressionKind = ExpressionKind::KeyCondition;

/// The keys that a query selects. The values have the types of the key schema and are not empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyCondition {
    /// The partition key.
    pub partition: KeyValue,
    /// The range of sort keys; `None` for all sort keys.
    pub sort: Option<SortCondition>,
}

/// A range of sort keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SortCondition {
    /// Only the given sort key.
    Equal(KeyValue),
    /// Sort keys less than the given key.
    Less(KeyValue),
    /// Sort keys less than or equal to the given key.
    LessOrEqual(KeyValue),
    /// Sort keys greater than the given key.
    Greater(KeyValue),
    /// Sort keys greater than or equal to the given key.
    GreaterOrEqual(KeyValue),
    /// Sort keys from the first to the second, both inclusive.
    Between(KeyValue, KeyValue),
    /// Strings or binaries that begin with the given prefix.
    BeginsWith(KeyValue),
}

impl SortCondition {
    /// Returns whether a sort key is in the range.
    #[must_use]
    pub fn matches(&self, key: &KeyValue) -> bool {
        match self {
            Self::Equal(value) => key == value,
            Self::Less(value) => key < value,
            Self::LessOrEqual(value) => key <= value,
            Self::Greater(value) => key > value,
            Self::GreaterOrEqual(value) => key >= value,
            Self::Between(low, high) => low <= key && key <= high,
            Self::BeginsWith(prefix) => match (key, prefix) {
                (KeyValue::S(text), KeyValue::S(prefix)) => text.starts_with(prefix),
                (KeyValue::B(bytes), KeyValue::B(prefix)) => bytes.starts_with(prefix),
                _ => false,
            },
        }
    }
}

/// The keys that a query selects of an index. The values have the types of the key schema and are
/// not empty.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexCondition {
    /// The values of all attributes of the partition key.
    pub partition: Vec<KeyValue>,
    /// The values of the first attributes of the sort key. The list may be shorter than the sort
    /// key.
    pub equal: Vec<KeyValue>,
    /// The range of the next attribute of the sort key; `None` for all values.
    pub sort: Option<SortCondition>,
}

impl From<KeyCondition> for IndexCondition {
    fn from(condition: KeyCondition) -> Self {
        Self { partition: vec![condition.partition], equal: Vec::new(), sort: condition.sort }
    }
}

/// A key condition expression that was parsed without a key schema.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyExpression {
    clauses: Vec<Clause>,
}

/// One condition on one attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Clause {
    pub(crate) attribute: String,
    pub(crate) range: Range,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Range {
    Compare(Comparator, AttributeValue),
    Between(AttributeValue, AttributeValue),
    BeginsWith(AttributeValue),
    /// An operator that the parameter `KeyConditions` accepts, but that no key attribute supports.
    NotIndexable,
}

impl Range {
    /// Returns the values with which the clause compares its attribute.
    pub(crate) fn values(&self) -> [Option<&AttributeValue>; 2] {
        match self {
            Self::Compare(_, value) | Self::BeginsWith(value) => [Some(value), None],
            Self::Between(low, high) => [Some(low), Some(high)],
            Self::NotIndexable => [None, None],
        }
    }
}

/// A key condition expression with checked names, values and operands. A later step checks whether
/// the expression consists of key conditions, because DynamoDB reports that error after all errors
/// of the request's other expressions.
#[derive(Debug)]
pub struct ParsedKeyExpression<'text>(Node<'text>);

impl<'text> ParsedKeyExpression<'text> {
    /// Parses the expression as a condition.
    ///
    /// # Errors
    /// The first error that DynamoDB would report, with its message.
    pub fn parse(
        text: &'text str,
        placeholders: &mut Placeholders,
    ) -> Result<Self, ExpressionError> {
        let node = parser::parse_condition(text, KIND)?;
        check_condition(KIND, &node)?;
        Resolver::new(KIND, placeholders).test(&node)?;
        Ok(Self(node))
    }

    /// Checks the rules that do not depend on a key schema. The expression contains only `AND`,
    /// comparators except `<>`, `BETWEEN` and `begins_with`. The expression has one condition per
    /// attribute and no nested paths.
    ///
    /// # Errors
    /// The first error that DynamoDB would report, with its message.
    pub fn into_conditions(
        self,
        placeholders: &mut Placeholders,
    ) -> Result<KeyExpression, ExpressionError> {
        let mut clauses = Vec::new();
        collect_clauses(&mut Resolver::new(KIND, placeholders), &self.0, &mut clauses)?;
        Ok(KeyExpression::new(clauses))
    }
}

/// Parses a key condition expression for a table or index with this key schema.
///
/// # Errors
/// See [`KeyExpression::parse`] and [`KeyExpression::resolve`].
pub fn parse_key_condition(
    text: &str,
    placeholders: &mut Placeholders,
    schema: &KeySchema,
) -> Result<KeyCondition, ExpressionError> {
    KeyExpression::parse(text, placeholders)?.resolve(schema)
}

impl KeyExpression {
    pub(crate) fn new(clauses: Vec<Clause>) -> Self {
        Self { clauses }
    }

    /// Parses a key condition expression that is the only expression of its request.
    ///
    /// # Errors
    /// See [`ParsedKeyExpression`].
    pub fn parse(text: &str, placeholders: &mut Placeholders) -> Result<Self, ExpressionError> {
        ParsedKeyExpression::parse(text, placeholders)?.into_conditions(placeholders)
    }

    /// Returns the names of the attributes that have a condition, in the order of the expression.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        self.clauses.iter().map(|clause| clause.attribute.as_str())
    }

    /// Validates the conditions against a key schema: the partition key must be equal to a value.
    ///
    /// # Errors
    /// The first error that DynamoDB would report, with its message.
    pub fn resolve(&self, schema: &KeySchema) -> Result<KeyCondition, ExpressionError> {
        let key_attributes = schema.attributes().count();
        self.check_count(key_attributes)?;
        let partition = self.clause(&schema.partition)?;
        let sort = match &schema.sort {
            Some(attribute) if self.clauses.len() == key_attributes => {
                Some((attribute, self.clause(attribute)?))
            }
            _ => None,
        };
        let value = equal_to(&schema.partition, &partition.range)?;
        let too_long = KeyError::PartitionKeyTooLong;
        let partition = key_value(&schema.partition, value, PARTITION_KEY_BYTES_MAX, too_long)?;
        let sort = sort.map(|(attribute, clause)| sort_condition(attribute, &clause.range));
        Ok(KeyCondition { partition, sort: sort.transpose()? })
    }

    /// Checks two rules that DynamoDB checks before it validates an exclusive start key: the
    /// partition key has a condition, and there are not too many conditions.
    ///
    /// # Errors
    /// The first error that DynamoDB would report, with its message.
    pub fn check_partition(&self, schema: &IndexKeySchema) -> Result<(), ExpressionError> {
        match (schema.partition.as_slice(), schema.sort.as_slice()) {
            ([partition], [] | [_]) => {
                self.check_count(schema.attributes().count())?;
                self.clause(partition).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Validates the conditions against the key schema of an index. Every attribute of the
    /// partition key must be equal to a value. All attributes of the sort key with conditions,
    /// except the last one, must also be equal to a value.
    ///
    /// # Errors
    /// The first error that DynamoDB would report, with its message.
    pub fn resolve_index(
        &self,
        schema: &IndexKeySchema,
    ) -> Result<IndexCondition, ExpressionError> {
        if let ([partition], [] | [_]) = (schema.partition.as_slice(), schema.sort.as_slice()) {
            let sort = schema.sort.first().cloned();
            let schema = KeySchema { partition: partition.clone(), sort };
            return self.resolve(&schema).map(IndexCondition::from);
        }
        self.check_count(schema.attributes().count())?;
        let missing = self.without_equality(&schema.partition);
        if !missing.is_empty() {
            return Err(ExpressionError::new(format!(
                "HASH key attributes {} must have equality conditions specified in the query",
                missing.join(", ")
            )));
        }
        if self.attributes().any(|attribute| !schema.contains(attribute)) {
            let is_free =
                |key: &&KeyAttribute| self.attributes().all(|attribute| attribute != key.name);
            let free = schema.sort.iter().find(is_free).map_or("", |key| key.name.as_str());
            return Err(ExpressionError::new(format!(
                "Query condition missed key schema element: {free}"
            )));
        }
        self.composite_condition(schema)
    }

    fn composite_condition(
        &self,
        schema: &IndexKeySchema,
    ) -> Result<IndexCondition, ExpressionError> {
        let mut partition = Vec::with_capacity(schema.partition.len());
        for attribute in &schema.partition {
            partition.push(self.equal_value(attribute, true)?);
        }
        let is_named =
            |key: &KeyAttribute| self.attributes().any(|attribute| attribute == key.name);
        let Some(last) = schema.sort.iter().rposition(is_named) else {
            return Ok(IndexCondition { partition, equal: Vec::new(), sort: None });
        };
        let (before, behind) = schema.sort.split_at(last);
        let Some(last) = behind.first() else {
            return Ok(IndexCondition { partition, equal: Vec::new(), sort: None });
        };
        let missing = self.without_equality(before);
        if !missing.is_empty() {
            return Err(ExpressionError::new(format!(
                "RANGE key attributes {} must have equality conditions specified in the query because a condition is present on key attribute {}",
                missing.join(", "),
                last.name
            )));
        }
        let mut equal = Vec::with_capacity(before.len());
        for attribute in before {
            equal.push(self.equal_value(attribute, false)?);
        }
        let sort = Some(sort_condition(last, &self.clause(last)?.range)?);
        Ok(IndexCondition { partition, equal, sort })
    }

    fn check_count(&self, key_attributes: usize) -> Result<(), ExpressionError> {
        if self.clauses.len() <= key_attributes {
            return Ok(());
        }
        Err(ExpressionError::new(format!(
            "The number of query conditions ({}) exceeds the number of key attributes defined in the schema ({key_attributes})",
            self.clauses.len()
        )))
    }

    /// Returns the names of the attributes without an equality condition.
    fn without_equality<'s>(&self, attributes: &'s [KeyAttribute]) -> Vec<&'s str> {
        let has_equality = |attribute: &KeyAttribute| {
            self.clauses.iter().any(|clause| {
                clause.attribute == attribute.name
                    && matches!(clause.range, Range::Compare(Comparator::Equal, _))
            })
        };
        let without = attributes.iter().filter(|attribute| !has_equality(attribute));
        without.map(|attribute| attribute.name.as_str()).collect()
    }

    fn equal_value(
        &self,
        attribute: &KeyAttribute,
        is_partition: bool,
    ) -> Result<KeyValue, ExpressionError> {
        let value = equal_to(attribute, &self.clause(attribute)?.range)?;
        let (bytes_max, too_long) = if is_partition {
            (PARTITION_KEY_BYTES_MAX, KeyError::PartitionKeyTooLong)
        } else {
            (SORT_KEY_BYTES_MAX, KeyError::SortKeyTooLong)
        };
        key_value(attribute, value, bytes_max, too_long)
    }

    fn clause(&self, attribute: &KeyAttribute) -> Result<&Clause, ExpressionError> {
        self.clauses.iter().find(|clause| clause.attribute == attribute.name).ok_or_else(|| {
            ExpressionError::new(format!(
                "Query condition missed key schema element: {}",
                attribute.name
            ))
        })
    }
}

/// Returns the value that an attribute must equal. Reports a wrong type before an unsupported
/// operator.
fn equal_to<'r>(
    attribute: &KeyAttribute,
    range: &'r Range,
) -> Result<&'r AttributeValue, ExpressionError> {
    match range {
        Range::Compare(Comparator::Equal, value) => return Ok(value),
        Range::NotIndexable => return Err(not_indexable()),
        _ => {}
    }
    for value in range.values().into_iter().flatten() {
        typed_key(attribute, value)?;
    }
    Err(ExpressionError::new("Query key condition not supported"))
}

fn sort_condition(
    attribute: &KeyAttribute,
    range: &Range,
) -> Result<SortCondition, ExpressionError> {
    let key = |value: &AttributeValue| {
        key_value(attribute, value, SORT_KEY_BYTES_MAX, KeyError::SortKeyTooLong)
    };
    Ok(match range {
        Range::Compare(Comparator::Equal, value) => SortCondition::Equal(key(value)?),
        Range::Compare(Comparator::Less, value) => SortCondition::Less(key(value)?),
        Range::Compare(Comparator::LessOrEqual, value) => SortCondition::LessOrEqual(key(value)?),
        Range::Compare(Comparator::Greater, value) => SortCondition::Greater(key(value)?),
        Range::Compare(Comparator::GreaterOrEqual, value) => {
            SortCondition::GreaterOrEqual(key(value)?)
        }
        Range::Compare(Comparator::NotEqual, _) => return Err(invalid_operator("<>")),
        Range::Between(low, high) => SortCondition::Between(key(low)?, key(high)?),
        Range::BeginsWith(value) => match key(value)? {
            KeyValue::N(_) => return Err(type_mismatch()),
            prefix => SortCondition::BeginsWith(prefix),
        },
        Range::NotIndexable => return Err(not_indexable()),
    })
}

/// Returns the value of a key attribute after DynamoDB's checks of keys: its type, its size, and
/// that it is not empty.
fn key_value(
    attribute: &KeyAttribute,
    value: &AttributeValue,
    bytes_max: usize,
    too_long: KeyError,
) -> Result<KeyValue, ExpressionError> {
    let key = typed_key(attribute, value)?;
    let error = match &key {
        KeyValue::S(text) if text.is_empty() => {
            KeyError::Empty { kind: "string", name: attribute.name.clone() }
        }
        KeyValue::B(bytes) if bytes.is_empty() => {
            KeyError::Empty { kind: "binary", name: attribute.name.clone() }
        }
        _ if value.size() > bytes_max => too_long,
        _ => return Ok(key),
    };
    Err(ExpressionError::new(error.to_string()))
}

fn typed_key(
    attribute: &KeyAttribute,
    value: &AttributeValue,
) -> Result<KeyValue, ExpressionError> {
    KeyValue::from_attribute_value(value)
        .filter(|key| key.attribute_type() == attribute.attribute_type)
        .ok_or_else(type_mismatch)
}

fn type_mismatch() -> ExpressionError {
    ExpressionError::new(
        "One or more parameter values were invalid: Condition parameter type does not match schema type",
    )
}

fn not_indexable() -> ExpressionError {
    ExpressionError::new("Attempted conditional constraint is not an indexable operation")
}

fn invalid_operator(operator: &str) -> ExpressionError {
    ExpressionError::new(format!("Invalid operator used in KeyConditionExpression: {operator}"))
}

fn invalid_condition(problem: &str) -> ExpressionError {
    ExpressionError::new(format!("Invalid condition in KeyConditionExpression: {problem}"))
}

fn collect_clauses<'text>(
    resolver: &mut Resolver<'_, 'text>,
    node: &Node<'text>,
    clauses: &mut Vec<Clause>,
) -> Result<(), ExpressionError> {
    let operands: Vec<&Node<'text>> = match node {
        Node::Group(inner) => return collect_clauses(resolver, inner, clauses),
        Node::And(members) => {
            return members
                .iter()
                .try_for_each(|member| collect_clauses(resolver, member, clauses));
        }
        Node::Or(_) => return Err(invalid_operator("OR")),
        Node::Not { .. } => return Err(invalid_operator("NOT")),
        Node::In { .. } => return Err(invalid_operator("IN")),
        Node::Compare { comparator: Comparator::NotEqual, .. } => {
            return Err(invalid_operator("<>"));
        }
        Node::Call(call) if call.name != "begins_with" => return Err(invalid_operator(call.name)),
        Node::Compare { left, right, .. } => vec![left, right],
        Node::Between { operand, lower, upper } => vec![operand, lower, upper],
        Node::Call(call) => call.arguments.iter().collect(),
        Node::Path(_) | Node::Value(_) | Node::Arithmetic { .. } => {
            return Err(resolver.misplaced());
        }
    };
    let clause = clause(resolver, node, &operands)?;
    if clauses.iter().any(|earlier| earlier.attribute == clause.attribute) {
        return Err(KIND.invalid("KeyConditionExpressions must only contain one condition per key"));
    }
    clauses.push(clause);
    Ok(())
}

/// Parses one condition. Exactly one of its operands is a path.
fn clause<'text>(
    resolver: &mut Resolver<'_, 'text>,
    node: &Node<'text>,
    operands: &[&Node<'text>],
) -> Result<Clause, ExpressionError> {
    if let (Some(operator), Some(first)) = (first_operand_operator(node), operands.first())
        && !matches!(first.unwrapped(), Node::Path(_))
    {
        return Err(invalid_condition(&format!(
            "{operator} operator must have the key attribute as its first operand"
        )));
    }
    let mut path: Option<(usize, &Steps<'text>)> = None;
    let mut values = Vec::new();
    for (position, operand) in operands.iter().enumerate() {
        match operand.unwrapped() {
            Node::Path(_) if path.is_some() => {
                // In DynamoDB's recorded responses, only this message repeats the name of the
                // parameter.
                let problem = invalid_condition("Multiple attribute names used in one condition");
                return Err(KIND.invalid(problem));
            }
            Node::Path(steps) if steps.0.len() > 1 => {
                return Err(KIND.invalid(
                    "KeyConditionExpressions cannot have conditions on nested attributes",
                ));
            }
            Node::Path(steps) => path = Some((position, steps)),
            Node::Value(placeholder) => {
                let index = resolver.value(placeholder)?;
                values.push(resolver.value_of(index).clone());
            }
            _ => {
                return Err(
                    KIND.invalid("KeyConditionExpressions cannot contain nested operations")
                );
            }
        }
    }
    let Some((position, steps)) = path else {
        return Err(invalid_condition("No key attribute specified"));
    };
    let attribute = resolver.path(steps)?.root().to_owned();
    let mut values = values.into_iter();
    let range = match (node, values.next(), values.next()) {
        (Node::Compare { comparator, .. }, Some(value), None) => {
            let comparator = if position == 0 { *comparator } else { comparator.mirrored() };
            Range::Compare(comparator, value)
        }
        (Node::Between { .. }, Some(low), Some(high)) => Range::Between(low, high),
        (Node::Call(_), Some(value), None) => Range::BeginsWith(value),
        _ => return Err(resolver.misplaced()),
    };
    Ok(Clause { attribute, range })
}

/// Returns the operator of a condition that requires the key attribute as its first operand.
fn first_operand_operator(node: &Node<'_>) -> Option<&'static str> {
    match node {
        Node::Between { .. } => Some("BETWEEN"),
        Node::Call(_) => Some("begins_with"),
        _ => None,
    }
}
