//! The code that `PutItem`, `UpdateItem` and `DeleteItem` share: parameters, submission of the command, and
//! members of the response.
//!
//! The file of each operation has the checks and results that are specific to this operation.

use expression::{Condition, ExpressionKind, Placeholders};
use model::KeyValue;
use partition::{Command, Reply, Table, Write, Written};

use super::capacity::{CapacityDetail, Consumption};
use super::constraints::{
    Constraints, RETURN_CONSUMED_CAPACITY, RETURN_ITEM_COLLECTION_METRICS, RETURN_VALUES,
    RETURN_VALUES_ON_FAILURE, RETURN_VALUES_SHOWN,
};
use super::error::ApiError;
use super::expressions::{self, Substitutions};
use super::item_collections;
use super::legacy::{ConditionsParameters, OperatorWords};
use super::metering::{self, Admitted};
use super::parameters::Parameters;
use super::wording::Wording;
use crate::store::Store;

/// The shared parameters, as they were sent.
pub(crate) struct WriteParameters<'j> {
    pub(crate) table: Option<&'j str>,
    pub(crate) condition: Option<&'j str>,
    pub(crate) expected: ConditionsParameters<'j>,
    pub(crate) substitutions: Substitutions,
    pub(crate) return_values: &'j str,
    return_on_failure: Option<&'j str>,
    capacity: Option<&'j str>,
    metrics: Option<&'j str>,
}

impl<'j> WriteParameters<'j> {
    pub(crate) fn read(parameters: Parameters<'j>) -> Result<Self, ApiError> {
        Ok(Self {
            table: parameters.string("TableName")?,
            condition: parameters.string("ConditionExpression")?,
            expected: ConditionsParameters::expected(parameters)?,
            substitutions: Substitutions::read(parameters, Wording::Current)?,
            return_values: parameters.string("ReturnValues")?.unwrap_or("NONE"),
            return_on_failure: parameters.string("ReturnValuesOnConditionCheckFailure")?,
            capacity: parameters.string("ReturnConsumedCapacity")?,
            metrics: parameters.string("ReturnItemCollectionMetrics")?,
        })
    }

    /// Checks the constraints of each parameter. `own` is the required parameter that only this
    /// operation has.
    ///
    /// DynamoDB has two sets of error messages. A request that lacks a required member, or is nested
    /// very deeply, gets the older messages.
    pub(crate) fn constrain(
        &self,
        parameters: Parameters<'_>,
        operation: WriteOperation,
        (own, is_present): (&str, bool),
        further: impl Fn(&mut Constraints),
    ) -> Result<(), ApiError> {
        let mut constraints = Constraints::new();
        if is_present && self.table.is_some() {
            if self.constrain_whole(&mut constraints, operation) {
                further(&mut constraints);
            }
            if constraints.is_empty() || !parameters.nests_deeply() {
                return constraints.finish();
            }
            constraints = Constraints::new();
        }
        self.constrain_older(&mut constraints);
        constraints.required(own, is_present);
        further(&mut constraints);
        constraints.finish()
    }

    /// Adds failures with DynamoDB's newer messages. Returns false if the remaining checks must be
    /// skipped. DynamoDB reports an empty table name without any other failure, and also an invalid
    /// `ReturnValues` of an update.
    fn constrain_whole(&self, constraints: &mut Constraints, operation: WriteOperation) -> bool {
        if self.table == Some("") {
            constraints.empty_name("TableName");
            return false;
        }
        let returned = Some(self.return_values);
        if operation == WriteOperation::Update {
            constraints.unnamed_one_of(returned, RETURN_VALUES, RETURN_VALUES_SHOWN);
            if !constraints.is_empty() {
                return false;
            }
        }
        constraints.one_of("returnConsumedCapacity", self.capacity, RETURN_CONSUMED_CAPACITY);
        if operation != WriteOperation::Update {
            constraints.unnamed_one_of(returned, RETURN_VALUES, RETURN_VALUES_SHOWN);
        }
        self.constrain_metrics(constraints);
        self.constrain_on_failure(constraints);
        constraints.table_name(self.table);
        self.expected.constrain(constraints, OperatorWords::Unnamed);
        true
    }

    fn constrain_older(&self, constraints: &mut Constraints) {
        constraints.one_of("returnConsumedCapacity", self.capacity, RETURN_CONSUMED_CAPACITY);
        self.constrain_metrics(constraints);
        constraints.table_name(self.table);
        constraints.one_of("returnValues", Some(self.return_values), RETURN_VALUES);
        self.constrain_on_failure(constraints);
        self.expected.constrain(constraints, OperatorWords::Named);
    }

    fn constrain_metrics(&self, constraints: &mut Constraints) {
        constraints.one_of(
            "returnItemCollectionMetrics",
            self.metrics,
            RETURN_ITEM_COLLECTION_METRICS,
        );
    }

    fn constrain_on_failure(&self, constraints: &mut Constraints) {
        constraints.one_of(
            "returnValuesOnConditionCheckFailure",
            self.return_on_failure,
            RETURN_VALUES_ON_FAILURE,
        );
    }

    /// Checks `ReturnValues`: only an update can return new values.
    pub(crate) fn check_returns_old_only(&self) -> Result<(), ApiError> {
        match self.return_values {
            "NONE" | "ALL_OLD" => Ok(()),
            _ => Err(ApiError::validation("ReturnValues can only be ALL_OLD or NONE")),
        }
    }

    pub(crate) fn returns_item_on_failure(&self) -> bool {
        self.return_on_failure == Some("ALL_OLD")
    }

    pub(crate) fn capacity_detail(&self) -> AnswerDetail {
        AnswerDetail {
            capacity: CapacityDetail::from_parameter(self.capacity),
            metrics: item_collections::are_asked_for(self.metrics),
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOperation {
    Put,
    Update,
    Delete,
}

/// The prefix of validation errors that are found before the table is looked up.
const DETECTED: &str = "1 validation error detected: ";

/// Adds the prefix [`DETECTED`] to an error that was found before the table was looked up, as
/// `PutItem`, `UpdateItem` and `DeleteItem` do. The errors of a very deeply nested request have no
/// prefix.
pub(crate) fn detected(parameters: Parameters<'_>, error: ApiError) -> ApiError {
    if parameters.nests_deeply() { error } else { error.prefixed(DETECTED) }
}

/// The optional members of a response that a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerDetail {
    capacity: CapacityDetail,
    metrics: bool,
}

/// Parses the condition of a put or a delete, from an expression or from legacy parameters.
pub(crate) fn only_condition(
    text: Option<&str>,
    substitutions: Substitutions,
    expected: ConditionsParameters<'_>,
) -> Result<Option<Condition>, ApiError> {
    if text.is_none() {
        return expected.into_condition();
    }
    let words = substitutions.words();
    let mut placeholders: Placeholders = substitutions.into_placeholders()?;
    let condition =
        expressions::condition(text, ExpressionKind::Condition, &mut placeholders, words)?;
    placeholders.check_all_used()?;
    Ok(condition)
}

/// Submits a write and waits until it is durable and applied.
pub(crate) async fn submit_write(
    store: &Store,
    table: &Table,
    write: Write,
) -> Result<Written, ApiError> {
    let admitted = metering::admit_write(store, table, &write).await?;
    let partition = write.key.partition.clone();
    let replies = store.submit(vec![Command::Write(Box::new(write))]).await?;
    let reply = replies.into_iter().next();
    record_reply(store, table, &partition, reply.as_ref(), admitted);
    written(reply)
}

/// Records the capacity that a write consumed.
pub(crate) fn record_reply(
    store: &Store,
    table: &Table,
    partition: &KeyValue,
    reply: Option<&Reply>,
    admitted: Admitted,
) {
    match reply {
        Some(Reply::Written(written)) => {
            metering::record_write(store, table, partition, written, 1, admitted, store.now());
        }
        Some(Reply::ConditionFailed { bytes, .. }) => {
            metering::record_refused_write(store, table, partition, *bytes, admitted);
        }
        _ => {}
    }
}

/// Converts the reply to a write into the write's result or the client's error.
pub(crate) fn written(reply: Option<Reply>) -> Result<Written, ApiError> {
    match reply {
        Some(Reply::Written(written)) => Ok(written),
        Some(Reply::ConditionFailed { item, .. }) => Err(ApiError::condition_failed(item)),
        Some(Reply::Invalid(text) | Reply::EmptyIndexKey(text)) => Err(ApiError::validation(text)),
        Some(Reply::ItemCollectionTooLarge) => Err(ApiError::item_collection_too_large()),
        Some(Reply::TableNotFound) => Err(ApiError::resource_not_found()),
        Some(Reply::Conflict) => Err(ApiError::transaction_conflict()),
        Some(_) | None => Err(ApiError::defect("a write returned an unexpected reply")),
    }
}

/// Appends `ConsumedCapacity` and `ItemCollectionMetrics`, if requested. `name` is the table's name as
/// it was sent.
pub(crate) fn write_capacity(
    out: &mut String,
    detail: AnswerDetail,
    name: &str,
    table: &Table,
    written: &Written,
) {
    let consumption = Consumption::of_write(table, written, detail.capacity);
    detail.capacity.write_member(out, name, consumption);
    if detail.metrics {
        item_collections::write_member(out, table, written);
    }
}
