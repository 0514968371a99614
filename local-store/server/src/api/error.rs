//! The errors that requests are answered with: DynamoDB's own types, texts and statuses.
//!
//! One constructor for each error, so that a search for `ApiError::` finds every complaint. Texts
//! that only one operation uses stand where they are used. Nothing here decides when to complain.

use model::Item;
use model::json::{self, DecodeError};
use model::key::KeyError;
use partition::ReadError;

use super::answer::text_member;
use super::cancellation::{
    COLLECTION_TOO_LARGE, DUPLICATE_ITEM, Reason, TABLE_NOT_FOUND, reason_code, write_reasons,
};
use super::error_type::ErrorType;
use super::response::Response;
use crate::store::Unavailable;
use crate::traffic::{Access, Excess};

/// An answer that is not a success.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    error_type: ErrorType,
    message: String,
    item: Option<Box<Item>>,
    throttling: Option<Box<Throttling>>,
    reasons: Vec<Reason>,
}

/// Which limit of what a request is beyond.
#[derive(Clone, Debug, PartialEq)]
struct Throttling {
    /// Resource, operation and limit in one word, such as `TableWriteKeyRangeThroughputExceeded`.
    reason: String,
    /// The ARN of the table or index.
    resource: String,
}

impl ApiError {
    fn new(error_type: ErrorType, message: impl Into<String>) -> Self {
        Self {
            error_type,
            message: message.into(),
            item: None,
            throttling: None,
            reasons: Vec::new(),
        }
    }

    /// `ValidationException` with a text of its own.
    #[must_use]
    pub fn validation(message: impl Into<String>) -> Self {
        Self::new(ErrorType::Validation, message)
    }

    /// `ValidationException`: `One or more parameter values were invalid: …`.
    #[must_use]
    pub fn invalid_parameter(message: impl AsRef<str>) -> Self {
        let text = format!("One or more parameter values were invalid: {}", message.as_ref());
        Self::validation(text)
    }

    /// `ValidationException` for a parameter that DynamoDB knows and this store does not, with
    /// what to do instead. This is the one text that the service does not have.
    #[must_use]
    pub fn unsupported(parameter: &str, instead: &str) -> Self {
        Self::validation(format!("{parameter} is not supported by this store yet; {instead}"))
    }

    /// `AccessDeniedException`: what is named belongs to another account.
    #[must_use]
    pub fn access_denied() -> Self {
        Self::new(ErrorType::AccessDenied, "Access is denied")
    }

    /// `SerializationException`: the body is not JSON or has the wrong shape.
    #[must_use]
    pub fn serialization(message: impl Into<String>) -> Self {
        Self::new(ErrorType::Serialization, message)
    }

    /// `UnknownOperationException`: the target names nothing that this store does.
    #[must_use]
    pub fn unknown_operation() -> Self {
        Self::new(ErrorType::UnknownOperation, "")
    }

    /// `MissingAuthenticationTokenException`: the request has no signature.
    #[must_use]
    pub fn missing_authentication() -> Self {
        Self::new(ErrorType::MissingAuthenticationToken, "Request is missing Authentication Token")
    }

    /// `IncompleteSignatureException`: parts of the signature are not there or have another form.
    #[must_use]
    pub fn incomplete_signature(message: &str) -> Self {
        Self::new(ErrorType::IncompleteSignature, message)
    }

    /// `UnrecognizedClientException`: there is no such access key.
    #[must_use]
    pub fn unrecognized_client() -> Self {
        Self::new(
            ErrorType::UnrecognizedClient,
            "The security token included in the request is invalid.",
        )
    }

    /// `InvalidSignatureException`: the signature is not right, too old, or of another service.
    #[must_use]
    pub fn invalid_signature(message: &str) -> Self {
        Self::new(ErrorType::InvalidSignature, message)
    }

    /// Status 413: the body is larger than a request may be.
    #[must_use]
    pub fn request_too_large(bytes_max: usize) -> Self {
        Self::new(
            ErrorType::RequestTooLarge,
            format!("the request body is larger than {bytes_max} bytes; send it in smaller parts"),
        )
    }

    /// `ResourceNotFoundException` as the operations on items say it.
    #[must_use]
    pub fn resource_not_found() -> Self {
        Self::new(ErrorType::ResourceNotFound, TABLE_NOT_FOUND)
    }

    /// `ResourceNotFoundException` as the operations on tables say it.
    #[must_use]
    pub fn table_not_found(name: &str) -> Self {
        let text = format!("Requested resource not found: Table: {name} not found");
        Self::new(ErrorType::ResourceNotFound, text)
    }

    /// `ResourceNotFoundException` with a text of its own.
    #[must_use]
    pub fn resource_missing(message: impl Into<String>) -> Self {
        Self::new(ErrorType::ResourceNotFound, message)
    }

    /// `TableNotFoundException`, as the operations on backups say it.
    #[must_use]
    pub fn backup_table_not_found(name: &str) -> Self {
        Self::new(ErrorType::TableNotFound, format!("Table not found: {name}"))
    }

    /// `PolicyNotFoundException`: there is no policy, or not the expected one.
    #[must_use]
    pub fn policy_not_found(arn: &str) -> Self {
        let text = format!("Resource-based policy not found for the provided ResourceArn: {arn}");
        Self::new(ErrorType::PolicyNotFound, text)
    }

    /// `ResourceNotFoundException` for a stream.
    #[must_use]
    pub fn stream_not_found(arn: &str) -> Self {
        let text = format!("Requested resource not found: Stream: {arn} not found");
        Self::new(ErrorType::ResourceNotFound, text)
    }

    /// `ResourceNotFoundException` for a shard.
    #[must_use]
    pub fn shard_not_found(id: &str, arn: &str) -> Self {
        let text = format!("Requested resource not found: Shard: {id} in Stream: {arn} not found");
        Self::new(ErrorType::ResourceNotFound, text)
    }

    /// `ResourceInUseException`: a table of this name is there already.
    #[must_use]
    pub fn table_exists(name: &str) -> Self {
        Self::new(ErrorType::ResourceInUse, format!("Table already exists: {name}"))
    }

    /// `ResourceInUseException`: what is asked for must wait for something that goes on.
    #[must_use]
    pub fn resource_in_use(message: impl Into<String>) -> Self {
        Self::new(ErrorType::ResourceInUse, message)
    }

    /// `LimitExceededException`: there are too many of something.
    #[must_use]
    pub fn limit_exceeded(message: &str) -> Self {
        Self::new(ErrorType::LimitExceeded, message)
    }

    /// `ConditionalCheckFailedException`, with the item if the request asked for it.
    #[must_use]
    pub fn condition_failed(item: Option<Item>) -> Self {
        let mut error =
            Self::new(ErrorType::ConditionalCheckFailed, "The conditional request failed");
        error.item = item.map(Box::new);
        error
    }

    /// `TransactionCanceledException`: nothing was done, with a reason for each operation.
    #[must_use]
    pub(crate) fn transaction_cancelled<R: Into<Reason>>(reasons: Vec<R>) -> Self {
        let reasons: Vec<Reason> = reasons.into_iter().map(Into::into).collect();
        let codes: Vec<&str> = reasons.iter().map(reason_code).collect();
        let mut error = Self::new(
            ErrorType::TransactionCanceled,
            format!(
                "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
                codes.join(", ")
            ),
        );
        error.reasons = reasons;
        error
    }

    /// `TransactionConflictException`: a transaction that is under way has the item.
    #[must_use]
    pub fn transaction_conflict() -> Self {
        Self::new(ErrorType::TransactionConflict, "Transaction is ongoing for the item")
    }

    /// `TransactionInProgressException`: an earlier request with this token is under way.
    #[must_use]
    pub fn transaction_in_progress() -> Self {
        Self::new(
            ErrorType::TransactionInProgress,
            "The transaction with the given request token is already in progress.",
        )
    }

    /// `ItemCollectionSizeLimitExceededException`: the items with this partition key and their
    /// entries in local indexes would become too large together.
    #[must_use]
    pub fn item_collection_too_large() -> Self {
        Self::new(ErrorType::ItemCollectionSizeLimitExceeded, COLLECTION_TOO_LARGE)
    }

    /// `ProvisionedThroughputExceededException` or, for a table on demand, `ThrottlingException`,
    /// with the limit and the table or index that has it.
    #[must_use]
    pub(crate) fn throttled(excess: &Excess, table_arn: &str) -> Self {
        let error_type = match excess.is_provisioned {
            true => ErrorType::ProvisionedThroughputExceeded,
            false => ErrorType::Throttling,
        };
        let message = throttling_text(excess.is_provisioned, excess.index.is_some());
        let (resource, kind) = match &excess.index {
            Some(index) => (format!("{table_arn}/index/{index}"), "Index"),
            None => (table_arn.to_owned(), "Table"),
        };
        let access = match excess.access {
            Access::Read => "Read",
            Access::Write => "Write",
        };
        let limit = if excess.is_key_range { "KeyRange" } else { "Provisioned" };
        let reason = format!("{kind}{access}{limit}ThroughputExceeded");
        let mut error = Self::new(error_type, message);
        error.throttling = Some(Box::new(Throttling { reason, resource }));
        error
    }

    /// The reason of one operation, in a transaction that this error cancels.
    pub(crate) fn into_reason(self) -> Reason {
        match self.error_type {
            ErrorType::ProvisionedThroughputExceeded => {
                Reason::Throttled { is_provisioned: true, text: self.message }
            }
            ErrorType::Throttling => {
                Reason::Throttled { is_provisioned: false, text: self.message }
            }
            ErrorType::ResourceNotFound => Reason::TableNotFound,
            _ => Reason::invalid(self.message),
        }
    }

    /// `IdempotentParameterMismatchException`: the token belongs to another transaction.
    #[must_use]
    pub fn token_mismatch() -> Self {
        Self::new(
            ErrorType::IdempotentParameterMismatch,
            "Request parameters do not match the parameters of the earlier request with this client request token",
        )
    }

    /// `ExpiredIteratorException`: the iterator is older than 15 minutes.
    #[must_use]
    pub fn expired_iterator(age_ms: u64, life_ms: u64) -> Self {
        Self::new(
            ErrorType::ExpiredIterator,
            format!(
                "The provided iterator exceeds the maximum age allowed: it was created {age_ms} \
                 milliseconds ago, the maximum is {life_ms}; request a new one"
            ),
        )
    }

    /// `TrimmedDataAccessException`: what is asked for was removed after 24 hours.
    #[must_use]
    pub fn trimmed() -> Self {
        Self::new(
            ErrorType::TrimmedDataAccess,
            "The operation attempted to read past the oldest stream record in a shard: records \
             older than 24 hours are removed",
        )
    }

    /// `InternalServerError`: a defect of this store, told to the log in full.
    #[must_use]
    pub fn defect(reason: &str) -> Self {
        tracing::error!(reason, "a request met a defect");
        Self::new(ErrorType::InternalServerError, "The request met a defect of the store")
    }

    /// The same, of a statement: a failed condition of an insert means that the item is there.
    pub(crate) fn for_insert(self, is_insert: bool) -> Self {
        if is_insert && self.error_type == ErrorType::ConditionalCheckFailed {
            return Self::new(ErrorType::DuplicateItem, DUPLICATE_ITEM);
        }
        self
    }

    /// The same, with a text before its own, when it is a fault of the request.
    pub(crate) fn prefixed(mut self, prefix: &str) -> Self {
        if self.error_type == ErrorType::Validation {
            self.message.insert_str(0, prefix);
        }
        self
    }

    /// How it is called as the error of one statement of a batch; `None` when it is none.
    pub(crate) fn statement_code(&self) -> Option<&'static str> {
        match self.error_type {
            ErrorType::Validation => Some("ValidationError"),
            ErrorType::AccessDenied => Some("AccessDenied"),
            ErrorType::ResourceNotFound => Some("ResourceNotFound"),
            ErrorType::ConditionalCheckFailed => Some("ConditionalCheckFailed"),
            ErrorType::DuplicateItem => Some("DuplicateItem"),
            ErrorType::TransactionConflict => Some("TransactionConflict"),
            ErrorType::ItemCollectionSizeLimitExceeded => Some("ItemCollectionSizeLimitExceeded"),
            ErrorType::ProvisionedThroughputExceeded => Some("ProvisionedThroughputExceeded"),
            ErrorType::Throttling => Some("ThrottlingError"),
            _ => None,
        }
    }

    /// Whether it can be why one operation of several is not carried out.
    pub(crate) fn is_of_operation(&self) -> bool {
        matches!(self.error_type, ErrorType::Validation | ErrorType::ResourceNotFound)
    }

    /// Whether it names something that is not there, as far as this node knows.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self.error_type, ErrorType::ResourceNotFound | ErrorType::TableNotFound)
    }

    /// The text.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether it says that something, such as a table, is not there.
    pub(super) fn is_resource_not_found(&self) -> bool {
        self.error_type == ErrorType::ResourceNotFound
    }

    /// What is sent: status and body.
    #[must_use]
    pub fn to_response(&self) -> Response {
        let mut body = String::with_capacity(160 + self.message.len());
        body.push_str("{\"__type\":");
        json::write_string(&mut body, self.error_type.name());
        if !self.message.is_empty() {
            // These spell the member with a capital letter; the SDKs read both. That a failed
            // condition with its item does is recorded in LocalStack's AWS snapshots
            // (`test_return_values_on_conditions_check_failure`).
            let capital = self.item.is_some()
                || matches!(
                    self.error_type,
                    ErrorType::Serialization
                        | ErrorType::TransactionCanceled
                        | ErrorType::IdempotentParameterMismatch
                );
            body.push_str(if capital { ",\"Message\":" } else { ",\"message\":" });
            json::write_string(&mut body, &self.message);
        }
        if let Some(item) = &self.item {
            body.push_str(",\"Item\":");
            json::write_item(&mut body, item);
        }
        if let Some(Throttling { reason, resource }) = self.throttling.as_deref() {
            // The two types spell the member differently (AWS API reference).
            let is_provisioned = self.error_type == ErrorType::ProvisionedThroughputExceeded;
            body.push_str(if is_provisioned { ",\"T" } else { ",\"t" });
            body.push_str("hrottlingReasons\":[{");
            text_member(&mut body, "reason", reason);
            text_member(&mut body, "resource", resource);
            body.push_str("}]");
        }
        write_reasons(&mut body, &self.reasons);
        body.push('}');
        Response { status: self.error_type.status(), body }
    }
}

/// What a request beyond a limit is told. Source: AWS, "Transaction conflict handling", reasons
/// for cancellation, which are in the same words.
fn throttling_text(is_provisioned: bool, is_index: bool) -> &'static str {
    match (is_provisioned, is_index) {
        (true, false) => {
            "The level of configured provisioned throughput for the table was exceeded. Consider increasing your provisioning level with the UpdateTable API."
        }
        (true, true) => {
            "The level of configured provisioned throughput for one or more global secondary indexes of the table was exceeded. Consider increasing your provisioning level for the under-provisioned global secondary indexes with the UpdateTable API"
        }
        (false, false) => {
            "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or index so please try again shortly. If exceptions persist, check if you have a hot key: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"
        }
        (false, true) => {
            "Throughput exceeds the current capacity for one or more global secondary indexes. DynamoDB is automatically scaling your index so please try again shortly."
        }
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Shape(text) => Self::serialization(text),
            DecodeError::Value(fault) => Self::validation(fault.current()),
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        Self::validation(error.to_string())
    }
}

/// The text is for the log: what is on disk is not the requester's business.
impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        tracing::error!(%error, "a request could not read the storage");
        Self::new(ErrorType::InternalServerError, "The request could not read the store's data")
    }
}

/// Both answers are ones that SDKs retry. Only the second leaves open whether the request was made.
impl From<Unavailable> for ApiError {
    fn from(error: Unavailable) -> Self {
        let error_type = match error {
            Unavailable::NotDone(_) => ErrorType::ServiceUnavailable,
            Unavailable::Unknown(_) => ErrorType::InternalServerError,
        };
        Self::new(error_type, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_written_as_the_service_writes_them() {
        for (error, status, body) in [
            (
                ApiError::validation("no \"x\""),
                400,
                r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"no \"x\""}"#,
            ),
            (
                ApiError::serialization("bad"),
                400,
                r#"{"__type":"com.amazon.coral.service#SerializationException","Message":"bad"}"#,
            ),
            (
                ApiError::unknown_operation(),
                400,
                r#"{"__type":"com.amazon.coral.service#UnknownOperationException"}"#,
            ),
            (
                ApiError::condition_failed(Some(Item::new().with("a", "b"))),
                400,
                r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","Message":"The conditional request failed","Item":{"a":{"S":"b"}}}"#,
            ),
            (
                ApiError::from(Unavailable::NotDone("it is stopping".to_owned())),
                503,
                r#"{"__type":"com.amazon.coral.service#ServiceUnavailableException","message":"the store is unavailable: it is stopping"}"#,
            ),
        ] {
            let response = error.to_response();
            assert_eq!((response.status, response.body.as_str()), (status, body));
        }
    }
}
