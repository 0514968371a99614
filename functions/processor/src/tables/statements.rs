//! PartiQL statements, up to 25 per request, each with its own condition. Source: DynamoDB
//! developer guide, "Running batch operations with PartiQL for DynamoDB".
//!
//! Callers write the statements and handle failed statements.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::batch_execute_statement::BatchExecuteStatementOutput;
use model::AttributeValue;
use model::json::write_attribute_value;
use serde::Deserialize;

use super::direct::exchanged;

/// Upper bound of the characters of one statement, inclusive (DynamoDB API reference,
/// `BatchStatementRequest`).
pub(crate) const STATEMENT_LENGTH_MAX: usize = 8192;
/// Upper bound of the statements of one request, inclusive.
pub(crate) const STATEMENTS_MAX: usize = 25;
/// The beginning of a request's body.
const HEAD: &str = r#"{"Statements":["#;

/// Statements that are sent together.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    /// The JSON of the request so far.
    body: String,
}

/// The outcome of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementOutcome {
    /// The statement was executed.
    Done,
    /// The condition of the statement was false.
    ConditionFailed,
    /// The statement failed for another reason.
    Failed,
}

#[derive(Deserialize)]
struct Answers {
    #[serde(rename = "Responses", default)]
    responses: Vec<StatementAnswer>,
}

#[derive(Deserialize)]
struct StatementAnswer {
    #[serde(rename = "Error")]
    error: Option<StatementError>,
}

#[derive(Deserialize)]
struct StatementError {
    #[serde(rename = "Code", default)]
    code: String,
}

/// The parameters of a statement, in order.
pub(crate) struct Parameters<'s> {
    body: &'s mut String,
    is_first: bool,
}

impl Parameters<'_> {
    /// Adds a parameter.
    pub(crate) fn push(&mut self, value: &AttributeValue) {
        self.push_written(|body| write_attribute_value(body, value));
    }

    /// Adds a parameter that `write` writes as DynamoDB JSON.
    pub(crate) fn push_written(&mut self, write: impl FnOnce(&mut String)) {
        if !std::mem::take(&mut self.is_first) {
            self.body.push(',');
        }
        write(self.body);
    }
}

impl Statements {
    /// Adds a statement with at least one parameter. `json` is the text of the statement as a JSON
    /// string, encoded once for many statements. Each `?` in the text stands for the next
    /// parameter.
    pub(crate) fn push_written(
        &mut self,
        json: &str,
        parameters: impl FnOnce(&mut Parameters<'_>),
    ) {
        self.body.push_str(if self.body.is_empty() { HEAD } else { "," });
        self.body.push_str(r#"{"Statement":"#);
        self.body.push_str(json);
        self.body.push_str(r#","Parameters":["#);
        parameters(&mut Parameters { body: &mut self.body, is_first: true });
        self.body.push_str("]}");
    }

    /// Returns the JSON of the request so far.
    #[cfg(test)]
    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// Returns the size of the request so far in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Sends the statements. Returns their outcomes in order, or an empty list if the outcomes are
    /// unknown.
    pub(crate) async fn send(mut self, client: &Client) -> Vec<StatementOutcome> {
        self.body.push_str("]}");
        let empty = || BatchExecuteStatementOutput::builder().build();
        let (direct, answer) = exchanged(self.body, empty);
        // The SDK requires an input, but the interceptor replaces it.
        let request = client.batch_execute_statement().set_statements(Some(Vec::new()));
        if request.customize().interceptor(direct).send().await.is_err() {
            return Vec::new();
        }
        answer.read(outcomes).unwrap_or_default()
    }
}

fn outcomes(body: &[u8]) -> Option<Vec<StatementOutcome>> {
    let answers: Answers = serde_json::from_slice(body).ok()?;
    let outcome = |answer: StatementAnswer| match answer.error {
        None => StatementOutcome::Done,
        Some(error) if error.code == "ConditionalCheckFailed" => StatementOutcome::ConditionFailed,
        Some(_) => StatementOutcome::Failed,
    };
    Some(answers.responses.into_iter().map(outcome).collect())
}
