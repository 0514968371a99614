//! The legacy parameters, which expressions have replaced: `Expected`, `AttributeUpdates`,
//! `KeyConditions`, `QueryFilter`, `ScanFilter`, `ConditionalOperator` and `AttributesToGet`.
//!
//! This module parses and checks these parameters with DynamoDB's error messages, and converts them
//! to the same types as expressions.

use std::collections::BTreeSet;

use expression::{
    Condition, KeyExpression, LEGACY_VALUES_MAX, LegacyAction, LegacyCondition, LegacyOperator,
    Projection, Update,
};
use model::json::Json;
use model::{AttributeType, AttributeValue};

use super::attribute_names;
use super::constraints::{Constraints, unnamed_enum};
use super::error::ApiError;
use super::parameters::{self, Parameters};
use super::wording::{Checked, Wording};

/// The values of `ConditionalOperator`.
const CONDITIONAL_OPERATORS: &[&str] = &["OR", "AND"];
/// The values of `ConditionalOperator` in error messages that do not name the parameter. `ALL` instead
/// of `AND` is a mistake of DynamoDB.
const CONDITIONAL_OPERATORS_SHOWN: &[&str] = &["ALL", "OR"];
/// The values of `ComparisonOperator`, in the order of DynamoDB's error messages.
const COMPARISON_OPERATORS: &[&str] = &[
    "IN",
    "NULL",
    "BETWEEN",
    "LT",
    "NOT_CONTAINS",
    "EQ",
    "GT",
    "NOT_NULL",
    "NE",
    "LE",
    "BEGINS_WITH",
    "GE",
    "CONTAINS",
];
/// The maximum number of `KeyConditions` for a key of one or two attributes.
const KEY_CONDITIONS_MAX: usize = 2;
/// The name of `Expected` in the messages of constraints.
const EXPECTED: &str = "expected";
/// The name of `ScanFilter` in the messages of constraints.
const SCAN_FILTER: &str = "scanFilter";
/// The values of `Action`.
const ACTIONS: &[&str] = &["ADD", "PUT", "DELETE"];

/// The types whose values can be ordered.
const ORDERED: &[AttributeType] = &[AttributeType::S, AttributeType::N, AttributeType::B];
/// The types of the values for which `CONTAINS` can search.
const PARTS: &[AttributeType] = &[
    AttributeType::S,
    AttributeType::N,
    AttributeType::B,
    AttributeType::Bool,
    AttributeType::Null,
];
/// The types that `BEGINS_WITH` supports.
const TEXTS: &[AttributeType] = &[AttributeType::S, AttributeType::B];

/// Returns the operator with the given name, its minimum and maximum number of values, inclusive,
/// and the types of these values.
fn operator(name: &str) -> Option<(LegacyOperator, usize, usize, &'static [AttributeType])> {
    let any = &AttributeType::ALL;
    Some(match name {
        "EQ" => (LegacyOperator::Equal, 1, 1, any),
        "NE" => (LegacyOperator::NotEqual, 1, 1, any),
        "LE" => (LegacyOperator::LessOrEqual, 1, 1, ORDERED),
        "LT" => (LegacyOperator::Less, 1, 1, ORDERED),
        "GE" => (LegacyOperator::GreaterOrEqual, 1, 1, ORDERED),
        "GT" => (LegacyOperator::Greater, 1, 1, ORDERED),
        "NOT_NULL" => (LegacyOperator::NotNull, 0, 0, any),
        "NULL" => (LegacyOperator::Null, 0, 0, any),
        "CONTAINS" => (LegacyOperator::Contains, 1, 1, PARTS),
        "NOT_CONTAINS" => (LegacyOperator::NotContains, 1, 1, PARTS),
        "BEGINS_WITH" => (LegacyOperator::BeginsWith, 1, 1, TEXTS),
        "IN" => (LegacyOperator::In, 1, usize::MAX, ORDERED),
        "BETWEEN" => (LegacyOperator::Between, 2, 2, ORDERED),
        _ => return None,
    })
}

/// The wording with which an operation reports an invalid `ConditionalOperator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperatorWords {
    Named,
    Unnamed,
}

/// One member of a map of conditions, as it was sent.
#[derive(Debug)]
struct ConditionParameters<'j> {
    attribute: &'j str,
    operator: Option<&'j str>,
    values: Option<Vec<Checked<AttributeValue>>>,
    /// `Value` and `Exists`, which occur only in `Expected`.
    value: Option<Checked<AttributeValue>>,
    exists: Option<bool>,
}

/// A map of conditions and its `ConditionalOperator`, as they were sent.
#[derive(Debug)]
pub(crate) struct ConditionsParameters<'j> {
    /// The name of the parameter in the messages of constraints.
    at: &'static str,
    conditions: Option<Vec<ConditionParameters<'j>>>,
    conditional_operator: Option<&'j str>,
    words: Wording,
}

impl<'j> ConditionsParameters<'j> {
    pub(crate) fn expected(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        Self::read(parameters, "Expected", EXPECTED)
    }

    pub(crate) fn scan_filter(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        Self::read(parameters, "ScanFilter", SCAN_FILTER)
    }

    pub(crate) fn query_filter(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        Self::read(parameters, "QueryFilter", "queryFilter")
    }

    pub(crate) fn key_conditions(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        let mut read = Self::read(parameters, "KeyConditions", "keyConditions")?;
        read.conditional_operator = None;
        Ok(read)
    }

    fn read(parameters: Parameters<'j>, name: &str, at: &'static str) -> Result<Self, ApiError> {
        let kind = if at == EXPECTED { "ExpectedAttributeValue" } else { "Condition" };
        let conditions = match parameters.map_of(name, parameters::Class(kind))? {
            None => None,
            Some(map) => Some(
                map.map()
                    .map(|(attribute, json)| {
                        read_condition(attribute, parameters::member(json, kind)?)
                    })
                    .collect::<Result<_, _>>()?,
            ),
        };
        let conditional_operator = parameters.string("ConditionalOperator")?;
        let words = if at == SCAN_FILTER { Wording::Older } else { Wording::Current };
        Ok(Self { at, conditions, conditional_operator, words })
    }

    pub(crate) fn is_given(&self) -> bool {
        self.conditions.is_some()
    }

    /// Checks `ConditionalOperator` with the error message of a Query. A Query checks this
    /// parameter before all others.
    pub(crate) fn check_operator(&self) -> Result<(), ApiError> {
        match self.conditional_operator {
            Some(operator) if !CONDITIONAL_OPERATORS.contains(&operator) => {
                Err(ApiError::validation(unnamed_enum(CONDITIONAL_OPERATORS_SHOWN)))
            }
            _ => Ok(()),
        }
    }

    /// Adds the constraint failures of the members.
    pub(crate) fn constrain(&self, constraints: &mut Constraints, words: OperatorWords) {
        let operator = self.conditional_operator;
        match words {
            OperatorWords::Named => {
                constraints.one_of("conditionalOperator", operator, CONDITIONAL_OPERATORS);
            }
            OperatorWords::Unnamed => constraints.unnamed_one_of(
                operator,
                CONDITIONAL_OPERATORS,
                CONDITIONAL_OPERATORS_SHOWN,
            ),
        }
        for condition in self.conditions.iter().flatten() {
            let at = format!("{}.{}.member.comparisonOperator", self.at, condition.attribute);
            if self.at != EXPECTED {
                constraints.required(&at, condition.operator.is_some());
            }
            constraints.one_of(&at, condition.operator, COMPARISON_OPERATORS);
        }
    }

    /// Checks that `ConditionalOperator` is used only with two or more conditions.
    pub(crate) fn check_joined(&self) -> Result<(), ApiError> {
        if self.conditional_operator.is_none() {
            return Ok(());
        }
        match self.conditions.as_ref().map_or(0, Vec::len) {
            0 => Err(ApiError::validation(
                "ConditionalOperator cannot be used without Filter or Expected",
            )),
            1 => Err(ApiError::validation(
                "ConditionalOperator can only be used when Filter or Expected has two or more elements",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the names of the attributes that have a condition.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &'j str> {
        self.conditions.iter().flatten().map(|condition| condition.attribute)
    }

    /// Returns one condition that combines all members; `None` if there are no members.
    pub(crate) fn into_condition(self) -> Result<Option<Condition>, ApiError> {
        let any = self.conditional_operator == Some("OR");
        let conditions = self.check()?;
        Ok(Some(conditions).filter(|c| !c.is_empty()).map(|c| Condition::of_legacy(c, any)))
    }

    /// Returns the key conditions. Their allowed number and operators depend on the key of the table
    /// or index, so [`check_key_conditions`] checks them after the table was looked up.
    pub(crate) fn into_key_expression(self, of_index: bool) -> Result<KeyExpression, ApiError> {
        let conditions = self.check()?;
        let max = if of_index { usize::MAX } else { KEY_CONDITIONS_MAX };
        if !(1..=max).contains(&conditions.len()) {
            return Err(too_many_key_conditions());
        }
        Ok(KeyExpression::of_legacy(conditions))
    }

    fn check(self) -> Result<Vec<LegacyCondition>, ApiError> {
        let is_expected = self.at == EXPECTED;
        let conditions: Vec<LegacyCondition> = self
            .conditions
            .into_iter()
            .flatten()
            .map(|condition| condition.check(is_expected, self.words))
            .collect::<Result<_, _>>()?;
        // Bounds the work for each item. A condition without values counts as one value.
        if conditions.iter().map(|c| c.values.len().max(1)).sum::<usize>() > LEGACY_VALUES_MAX {
            return Err(ApiError::invalid_parameter(format!(
                "The conditions have more than {LEGACY_VALUES_MAX} values in total"
            )));
        }
        Ok(conditions)
    }
}

/// Checks the number of `KeyConditions` for a key with the given number of attributes.
pub(crate) fn check_key_conditions(
    conditions: usize,
    key_attributes: usize,
) -> Result<(), ApiError> {
    if conditions > key_attributes.max(KEY_CONDITIONS_MAX) {
        return Err(too_many_key_conditions());
    }
    Ok(())
}

fn too_many_key_conditions() -> ApiError {
    ApiError::validation("Conditions can be of length 1 or 2 only")
}

fn read_condition<'j>(
    attribute: &'j str,
    parameters: Parameters<'j>,
) -> Result<ConditionParameters<'j>, ApiError> {
    let values = parameters.value_list("AttributeValueList")?;
    Ok(ConditionParameters {
        attribute,
        operator: parameters.string("ComparisonOperator")?,
        values,
        value: parameters.attribute_value("Value")?,
        exists: parameters.boolean("Exists")?,
    })
}

impl ConditionParameters<'_> {
    fn check(self, is_expected: bool, words: Wording) -> Result<LegacyCondition, ApiError> {
        let attribute = self.attribute;
        attribute_names::check(attribute).map_err(|wrong| words.error(&wrong))?;
        let together = |one: &str, two: &str| {
            Err(ApiError::invalid_parameter(format!(
                "{one} and {two} cannot be used together for Attribute: {attribute}"
            )))
        };
        if self.value.is_some() && self.values.is_some() {
            return together("Value", "AttributeValueList");
        }
        let Some(name) = self.operator else {
            return self.check_existence();
        };
        if self.exists.is_some() {
            return together("Exists", "ComparisonOperator");
        }
        let Some((operator, min, max, types)) = operator(name) else {
            return Err(ApiError::defect("an invalid comparison operator passed validation"));
        };
        if is_expected && min > 0 && self.value.is_none() && self.values.is_none() {
            return Err(ApiError::invalid_parameter(format!(
                "Value or AttributeValueList must be used with ComparisonOperator: {name} for Attribute: {attribute}"
            )));
        }
        let values = self.values.into_iter().flatten().chain(self.value);
        let values: Vec<AttributeValue> =
            values.collect::<Result<_, _>>().map_err(|wrong| words.error(&wrong))?;
        if !(min..=max).contains(&values.len()) {
            return Err(ApiError::invalid_parameter(format!(
                "Invalid number of argument(s) for the {name} ComparisonOperator"
            )));
        }
        check_types(name, types, &values)?;
        check_bounds(operator, &values)?;
        Ok(LegacyCondition { attribute: attribute.to_owned(), operator, values })
    }

    /// Checks `Exists` and `Value`, which are a short form of the operators `NULL` and `EQ`.
    fn check_existence(self) -> Result<LegacyCondition, ApiError> {
        let attribute = self.attribute;
        let invalid = |text: &str| {
            Err(ApiError::invalid_parameter(format!("{text} for Attribute: {attribute}")))
        };
        if self.values.is_some() {
            return invalid("AttributeValueList can only be used with a ComparisonOperator");
        }
        let value = self.value.transpose().map_err(|wrong| wrong.current())?;
        let (operator, values) = match (self.exists, value) {
            (None, None) => return invalid("Value must be provided when Exists is null"),
            (Some(true), None) => return invalid("Value must be provided when Exists is true"),
            (Some(false), Some(_)) => return invalid("Value cannot be used when Exists is false"),
            (Some(false), None) => (LegacyOperator::Null, Vec::new()),
            (_, Some(value)) => (LegacyOperator::Equal, vec![value]),
        };
        Ok(LegacyCondition { attribute: attribute.to_owned(), operator, values })
    }
}

/// Checks that all values have the same type, and that the operator supports this type.
fn check_types(
    operator: &str,
    types: &[AttributeType],
    values: &[AttributeValue],
) -> Result<(), ApiError> {
    let Some(first) = values.first().map(AttributeValue::attribute_type) else {
        return Ok(());
    };
    if values.iter().any(|value| value.attribute_type() != first) {
        return Err(ApiError::invalid_parameter(
            "AttributeValues inside AttributeValueList must be of same type",
        ));
    }
    if !types.contains(&first) {
        return Err(ApiError::invalid_parameter(format!(
            "ComparisonOperator {operator} is not valid for {} AttributeValue type",
            first.descriptor()
        )));
    }
    Ok(())
}

fn check_bounds(operator: LegacyOperator, values: &[AttributeValue]) -> Result<(), ApiError> {
    match (operator, values) {
        (LegacyOperator::Between, [low, high])
            if low.compare(high).is_some_and(std::cmp::Ordering::is_gt) =>
        {
            Err(ApiError::validation(
                "The BETWEEN condition was provided a range where the lower bound is greater than the upper bound",
            ))
        }
        _ => Ok(()),
    }
}

/// One member of `AttributeUpdates`, as it was sent: its attribute, its action and its value.
type ActionParameters<'j> = (&'j str, Option<&'j str>, Option<Checked<AttributeValue>>);

/// `AttributeUpdates`, as it was sent.
#[derive(Debug)]
pub(crate) struct AttributeUpdates<'j>(Vec<ActionParameters<'j>>);

impl<'j> AttributeUpdates<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Option<Self>, ApiError> {
        const KIND: &str = "AttributeValueUpdate";
        let Some(map) = parameters.map_of("AttributeUpdates", parameters::Class(KIND))? else {
            return Ok(None);
        };
        let read = |(attribute, json): (&'j str, &'j Json<'j>)| {
            let update = parameters::member(json, KIND)?;
            let value = update.attribute_value("Value")?;
            Ok((attribute, update.string("Action")?, value))
        };
        map.map().map(read).collect::<Result<_, _>>().map(|updates| Some(Self(updates)))
    }

    pub(crate) fn constrain(&self, constraints: &mut Constraints) {
        for (attribute, action, _) in &self.0 {
            let at = format!("attributeUpdates.{attribute}.member.action");
            constraints.one_of(&at, *action, ACTIONS);
        }
    }

    /// Returns an update that combines all members.
    pub(crate) fn into_update(self) -> Result<Update, ApiError> {
        let mut updates = Vec::with_capacity(self.0.len());
        let mut seen = BTreeSet::new();
        for (attribute, action, value) in self.0 {
            attribute_names::check(attribute).map_err(|wrong| wrong.current())?;
            if !seen.insert(attribute) {
                return Err(ApiError::serialization(format!("Duplicate attribute: {attribute}")));
            }
            let value = value.transpose().map_err(|wrong| wrong.current())?;
            updates.push((attribute.to_owned(), legacy_action(action.unwrap_or("PUT"), value)?));
        }
        if updates.len() > LEGACY_VALUES_MAX / 2 {
            return Err(ApiError::invalid_parameter("AttributeUpdates has too many members"));
        }
        Ok(Update::of_legacy(updates))
    }
}

fn legacy_action(action: &str, value: Option<AttributeValue>) -> Result<LegacyAction, ApiError> {
    let Some(value) = value else {
        return if action == "DELETE" {
            Ok(LegacyAction::Delete)
        } else {
            Err(ApiError::invalid_parameter(
                "Only DELETE action is allowed when no attribute value is specified",
            ))
        };
    };
    let kind = value.attribute_type();
    let is_set = matches!(kind, AttributeType::Ss | AttributeType::Ns | AttributeType::Bs);
    match action {
        "ADD" if is_set || matches!(kind, AttributeType::N | AttributeType::L) => {
            Ok(LegacyAction::Add(value))
        }
        "ADD" => Err(ApiError::invalid_parameter(format!(
            "ADD action is not supported for the type {}",
            kind.descriptor()
        ))),
        "DELETE" if is_set => Ok(LegacyAction::DeleteMembers(value)),
        "DELETE" => Err(ApiError::invalid_parameter(format!(
            "DELETE action with value is not supported for the type {}",
            kind.descriptor()
        ))),
        _ => Ok(LegacyAction::Put(value)),
    }
}

/// `AttributesToGet`, as it was sent.
pub(crate) struct AttributesToGet<'j>(Option<Vec<&'j str>>);

impl<'j> AttributesToGet<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        parameters.texts("AttributesToGet").map(Self)
    }

    /// Creates the parameter from the names as they were sent.
    pub(crate) fn of(names: Option<Vec<&'j str>>) -> Self {
        Self(names)
    }

    pub(crate) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn constrain(&self, constraints: &mut Constraints, at: &str) {
        if let Some(names) = &self.0 {
            constraints.length_at_least(at, &"[]", names.len(), 1);
        }
    }

    /// Returns the projection, if the parameter is present.
    pub(crate) fn into_projection(self) -> Result<Option<Projection>, ApiError> {
        self.projection()
    }

    /// Returns the projection without consuming the parameter; see
    /// [`AttributesToGet::into_projection`].
    pub(crate) fn projection(&self) -> Result<Option<Projection>, ApiError> {
        let Some(names) = &self.0 else {
            return Ok(None);
        };
        for name in names {
            attribute_names::check(name).map_err(|wrong| wrong.current())?;
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(**name)) {
            return Err(ApiError::invalid_parameter(format!(
                "Duplicate value in attribute name: {twice}"
            )));
        }
        Ok(Some(Projection::of_attributes(names.iter().copied())))
    }
}
