//! The expression parameters that operations share: placeholders, and the checks of which parameters
//! may be combined.
//!
//! The crate `expression` parses the expressions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use expression::{Condition, ExpressionError, ExpressionKind, Path, Placeholders, Projection};
use model::AttributeValue;
use partition::Table;

use super::error::ApiError;
use super::index_choice::Source;
use super::parameters::Parameters;
use super::wording::{Checked, Wording};

/// The legacy parameters of a condition: `Expected`, and `ConditionalOperator`, which combines the
/// members of `Expected`.
pub(crate) const LEGACY_CONDITION: [&str; 2] = ["Expected", "ConditionalOperator"];

/// The parameters `ExpressionAttributeNames` and `ExpressionAttributeValues`, as they were sent.
#[derive(Debug)]
pub(crate) struct Substitutions {
    names: Option<BTreeMap<String, String>>,
    values: Option<Checked<BTreeMap<String, AttributeValue>>>,
    words: Wording,
}

impl From<ExpressionError> for ApiError {
    fn from(error: ExpressionError) -> Self {
        Self::validation(error.to_string())
    }
}

impl Substitutions {
    /// Reads `ExpressionAttributeNames` and `ExpressionAttributeValues`.
    pub(crate) fn read(parameters: Parameters<'_>, words: Wording) -> Result<Self, ApiError> {
        let names = parameters.strings("ExpressionAttributeNames")?;
        let values = parameters.placeholder_values("ExpressionAttributeValues", words)?;
        // For requests with deeply nested values, DynamoDB uses its older error messages.
        let words = match &values {
            Some(Err(_)) if parameters.nests_deeply() => Wording::Older,
            _ => words,
        };
        Ok(Self { names, values, words })
    }

    /// Creates substitutions with names but without values.
    pub(crate) fn of_names(names: Option<BTreeMap<String, String>>) -> Self {
        Self { names, values: None, words: Wording::Current }
    }

    /// Returns the wording that the operation uses for errors in expressions.
    pub(crate) fn words(&self) -> Wording {
        self.words
    }

    /// Validates the placeholders and returns them.
    pub(crate) fn into_placeholders(self) -> Result<Placeholders, ApiError> {
        self.placeholders(|error| ApiError::validation(error.with_size()))
    }

    /// Validates the placeholders of a Scan and returns them. If a value placeholder is too long,
    /// the error of a Scan does not contain the length; the errors of other operations do.
    pub(crate) fn into_placeholders_of_scan(self) -> Result<Placeholders, ApiError> {
        self.placeholders(ApiError::from)
    }

    fn placeholders(
        self,
        refusal: impl FnOnce(ExpressionError) -> ApiError,
    ) -> Result<Placeholders, ApiError> {
        let values = self.values.transpose().map_err(|wrong| self.words.error(&wrong))?;
        Placeholders::new(self.names, values).map_err(refusal)
    }
}

/// Returns the error for a request that has both legacy parameters and expressions.
pub(crate) fn mixed(legacy: &[&str], expressions: &[&str]) -> ApiError {
    ApiError::validation(format!(
        "Can not use both expression and non-expression parameters in the same request: \
         Non-expression parameters: {{{}}} Expression parameters: {{{}}}",
        legacy.join(", "),
        expressions.join(", ")
    ))
}

/// Checks that expressions are not mixed with legacy parameters, and that placeholders are not sent
/// without an expression. `KeyConditions` may be combined with all expressions except
/// `KeyConditionExpression`.
pub(crate) fn check_combination(
    parameters: Parameters<'_>,
    expressions: &[&str],
    legacy: &[&str],
    words: Wording,
) -> Result<(), ApiError> {
    let given: Vec<&str> =
        expressions.iter().copied().filter(|name| parameters.has(name)).collect();
    let names: Vec<&str> = legacy.iter().copied().filter(|name| parameters.has(name)).collect();
    let is_mixed = names
        .iter()
        .any(|name| *name != "KeyConditions" || parameters.has("KeyConditionExpression"));
    if is_mixed && !given.is_empty() {
        return Err(mixed(&names, &given));
    }
    if given.is_empty() && parameters.has("ExpressionAttributeNames") {
        return Err(ApiError::validation(
            "ExpressionAttributeNames can only be specified when using expressions",
        ));
    }
    check_values_used(parameters, expressions, words)
}

fn check_values_used(
    parameters: Parameters<'_>,
    expressions: &[&str],
    words: Wording,
) -> Result<(), ApiError> {
    let with_values: Vec<&str> =
        expressions.iter().copied().filter(|name| *name != "ProjectionExpression").collect();
    if !parameters.has("ExpressionAttributeValues")
        || with_values.is_empty()
        || with_values.iter().any(|name| parameters.has(name))
    {
        return Ok(());
    }
    let mut text =
        String::from("ExpressionAttributeValues can only be specified when using expressions");
    if words == Wording::Older {
        let verb = if with_values.len() > 1 { "are" } else { "is" };
        let _ = write!(text, ": {} {verb} null", with_values.join(" and "));
    }
    Err(ApiError::validation(text))
}

/// Parses the condition, if there is one.
pub(crate) fn condition(
    text: Option<&str>,
    kind: ExpressionKind,
    placeholders: &mut Placeholders,
    words: Wording,
) -> Result<Option<Condition>, ApiError> {
    text.map(|text| expression::parse_condition(text, kind, placeholders)).transpose().map_err(
        |error| match words {
            Wording::Current => ApiError::from(error),
            Wording::Older => ApiError::validation(error.with_size()),
        },
    )
}

/// Parses the filter, if there is one.
pub(crate) fn filter(
    text: Option<&str>,
    placeholders: &mut Placeholders,
    words: Wording,
) -> Result<Option<Condition>, ApiError> {
    condition(text, ExpressionKind::Filter, placeholders, words)
}

/// Parses the projection, if there is one.
pub(crate) fn projection(
    text: Option<&str>,
    placeholders: &mut Placeholders,
) -> Result<Option<Projection>, ApiError> {
    text.map(|text| expression::parse_projection(text, placeholders))
        .transpose()
        .map_err(ApiError::from)
}

/// Checks that `QueryFilter` contains no key attributes.
pub(crate) fn check_query_filter_leaves_keys<'a>(
    mut attributes: impl Iterator<Item = &'a str>,
    source: Source<'_>,
) -> Result<(), ApiError> {
    match attributes.find(|attribute| source.is_key(attribute)) {
        None => Ok(()),
        Some(attribute) => Err(ApiError::validation(format!(
            "QueryFilter can only contain non-primary key attributes: Primary key attribute: {attribute}"
        ))),
    }
}

/// Checks that a Query's filter contains no attributes of the key condition.
pub(crate) fn check_filter_leaves_keys(
    filter: Option<&Condition>,
    source: Source<'_>,
) -> Result<(), ApiError> {
    let mut paths = filter.into_iter().flat_map(Condition::paths);
    match paths.find(|path| source.is_key(path.root())) {
        None => Ok(()),
        Some(path) => Err(ApiError::validation(format!(
            "Filter Expression can only contain non-primary key attributes: Primary key attribute: {}",
            path.root()
        ))),
    }
}

/// Checks that no path of a projection addresses a part of a key attribute.
pub(crate) fn check_projection_leaves_keys(
    projection: Option<&Projection>,
    table: &Table,
) -> Result<(), ApiError> {
    check_scalar_keys(&projection.into_iter().flat_map(Projection::entered_roots).collect(), table)
}

/// Checks that no path of a filter addresses a part of a key attribute.
pub(crate) fn check_filter_enters_no_key(
    filter: Option<&Condition>,
    table: &Table,
) -> Result<(), ApiError> {
    let nested = filter.into_iter().flat_map(Condition::paths).filter(|path| path.is_nested());
    check_scalar_keys(&nested.map(Path::root).collect(), table)
}

/// Checks that no path addresses a part of a key attribute, because keys are scalars. Checks the keys
/// of the table and of all its indexes, even if the request reads only one of them.
fn check_scalar_keys(entered: &BTreeSet<&str>, table: &Table) -> Result<(), ApiError> {
    if entered.is_empty() {
        return Ok(());
    }
    let mut of_table = table.key_schema.attributes();
    if let Some(key) = of_table.find(|key| entered.contains(key.name.as_str())) {
        return Err(key_is_scalar("Key", &key.name));
    }
    let mut of_indexes =
        table.indexes.iter().flat_map(|index| index.definition.key_schema.attributes());
    match of_indexes.find(|key| entered.contains(key.name.as_str())) {
        None => Ok(()),
        Some(key) => Err(key_is_scalar("IndexKey", &key.name)),
    }
}

/// Returns the error for a path that addresses a part of a key attribute. `kind` is the kind of key
/// in the message: of the table or of an index.
pub(crate) fn key_is_scalar(kind: &str, name: &str) -> ApiError {
    ApiError::validation(format!(
        "Key attributes must be scalars; list random access '[]' and map lookup '.' are not allowed: {kind}: {name}"
    ))
}
