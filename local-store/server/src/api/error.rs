//! The errors of requests, with DynamoDB's types, messages and statuses.
//!
//! Each error has a constructor, so that a search for `ApiError::` finds every place that returns an
//! error. Messages that only one operation uses are in the file of that operation. This module does
//! not decide when an error occurs.

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
use crate::store::handover::HandedOver;
use crate::traffic::{Access, Excess};

/// An unsuccessful response.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    error_type: ErrorType,
    message: String,
    item: Option<Box<Item>>,
    throttling: Option<Box<Throttling>>,
    reasons: Vec<Reason>,
}

/// The throughput limit that a request exceeds.
#[derive(Clone, Debug, PartialEq)]
struct Throttling {
    /// The throttling reason, which names the resource, the operation and the limit in one word, such as
    /// `TableWriteKeyRangeThroughputExceeded`.
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

    /// Creates a `ValidationException` with the given message.
    #[must_use]
    pub fn validation(message: impl Into<String>) -> Self {
        Self::new(ErrorType::Validation, message)
    }

    /// Creates a `ValidationException` with `One or more parameter values were invalid: …`.
    #[must_use]
    pub fn invalid_parameter(message: impl AsRef<str>) -> Self {
        let text = format!("One or more parameter values were invalid: {}", message.as_ref());
        Self::validation(text)
    }

    /// Creates a `ValidationException` for a parameter that DynamoDB supports, but this store does
    /// not. `instead` tells the client what to do instead.
    #[must_use]
    pub fn unsupported(parameter: &str, instead: &str) -> Self {
        Self::validation(format!("{parameter} is not supported by this store yet; {instead}"))
    }

    /// Creates an `AccessDeniedException`: the resource belongs to another account.
    #[must_use]
    pub fn access_denied() -> Self {
        Self::new(ErrorType::AccessDenied, "Access is denied")
    }

    /// Creates a `SerializationException`: the body is not JSON or has the wrong shape.
    #[must_use]
    pub fn serialization(message: impl Into<String>) -> Self {
        Self::new(ErrorType::Serialization, message)
    }

    /// Creates an `UnknownOperationException`: the target is not an operation of this store.
    #[must_use]
    pub fn unknown_operation() -> Self {
        Self::new(ErrorType::UnknownOperation, "")
    }

    /// Creates a `MissingAuthenticationTokenException`: the request has no signature.
    #[must_use]
    pub fn missing_authentication() -> Self {
        Self::new(ErrorType::MissingAuthenticationToken, "Request is missing Authentication Token")
    }

    /// Creates an `IncompleteSignatureException`: parts of the signature are missing or malformed.
    #[must_use]
    pub fn incomplete_signature(message: &str) -> Self {
        Self::new(ErrorType::IncompleteSignature, message)
    }

    /// Creates an `UnrecognizedClientException`: the access key does not exist.
    #[must_use]
    pub fn unrecognized_client() -> Self {
        Self::new(
            ErrorType::UnrecognizedClient,
            "The security token included in the request is invalid.",
        )
    }

    /// Creates an `InvalidSignatureException`: the signature is wrong, expired, or for another service.
    #[must_use]
    pub fn invalid_signature(message: &str) -> Self {
        Self::new(ErrorType::InvalidSignature, message)
    }

    /// Creates a response with status 413: the request body is too large.
    #[must_use]
    pub fn request_too_large(bytes_max: usize) -> Self {
        Self::new(
            ErrorType::RequestTooLarge,
            format!("the request body is larger than {bytes_max} bytes; send it in smaller parts"),
        )
    }

    /// Creates a `ResourceNotFoundException` with the message of operations on items.
    #[must_use]
    pub fn resource_not_found() -> Self {
        Self::new(ErrorType::ResourceNotFound, TABLE_NOT_FOUND)
    }

    /// Creates a `ResourceNotFoundException` with the message of operations on tables.
    #[must_use]
    pub fn table_not_found(name: &str) -> Self {
        let text = format!("Requested resource not found: Table: {name} not found");
        Self::new(ErrorType::ResourceNotFound, text)
    }

    /// Creates a `ResourceNotFoundException` with the given message.
    #[must_use]
    pub fn resource_missing(message: impl Into<String>) -> Self {
        Self::new(ErrorType::ResourceNotFound, message)
    }

    /// Creates the `TableNotFoundException` of operations on backups.
    #[must_use]
    pub fn backup_table_not_found(name: &str) -> Self {
        Self::new(ErrorType::TableNotFound, format!("Table not found: {name}"))
    }

    /// Creates a `PolicyNotFoundException`: there is no policy, or its revision is not the expected
    /// one.
    #[must_use]
    pub fn policy_not_found(arn: &str) -> Self {
        let text = format!("Resource-based policy not found for the provided ResourceArn: {arn}");
        Self::new(ErrorType::PolicyNotFound, text)
    }

    /// Creates a `ResourceNotFoundException` for a stream.
    #[must_use]
    pub fn stream_not_found(arn: &str) -> Self {
        let text = format!("Requested resource not found: Stream: {arn} not found");
        Self::new(ErrorType::ResourceNotFound, text)
    }

    /// Creates a `ResourceNotFoundException` for a shard.
    #[must_use]
    pub fn shard_not_found(id: &str, arn: &str) -> Self {
        let text = format!("Requested resource not found: Shard: {id} in Stream: {arn} not found");
        Self::new(ErrorType::ResourceNotFound, text)
    }

    /// Creates a `ResourceInUseException`: a table with the given name exists.
    #[must_use]
    pub fn table_exists(name: &str) -> Self {
        Self::new(ErrorType::ResourceInUse, format!("Table already exists: {name}"))
    }

    /// Creates a `ResourceInUseException`: the request must wait for a change in progress.
    #[must_use]
    pub fn resource_in_use(message: impl Into<String>) -> Self {
        Self::new(ErrorType::ResourceInUse, message)
    }

    /// Creates a `LimitExceededException`: there are too many resources of a kind.
    #[must_use]
    pub fn limit_exceeded(message: &str) -> Self {
        Self::new(ErrorType::LimitExceeded, message)
    }

    /// Creates a `ConditionalCheckFailedException`, with the item if the request requires it.
    #[must_use]
    pub fn condition_failed(item: Option<Item>) -> Self {
        let mut error =
            Self::new(ErrorType::ConditionalCheckFailed, "The conditional request failed");
        error.item = item.map(Box::new);
        error
    }

    /// Creates a `TransactionCanceledException`: the transaction had no effect. There is a reason for each
    /// operation.
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

    /// Creates a `TransactionConflictException`: a running transaction has locked the item.
    #[must_use]
    pub fn transaction_conflict() -> Self {
        Self::new(ErrorType::TransactionConflict, "Transaction is ongoing for the item")
    }

    /// Creates a `TransactionInProgressException`: an earlier request with the same token is in
    /// progress.
    #[must_use]
    pub fn transaction_in_progress() -> Self {
        Self::new(
            ErrorType::TransactionInProgress,
            "The transaction with the given request token is already in progress.",
        )
    }

    /// Creates an `ItemCollectionSizeLimitExceededException`: the total size of the items with this
    /// partition key and of their entries in local indexes would exceed the limit.
    #[must_use]
    pub fn item_collection_too_large() -> Self {
        Self::new(ErrorType::ItemCollectionSizeLimitExceeded, COLLECTION_TOO_LARGE)
    }

    /// Creates a `ProvisionedThroughputExceededException` or, for an on-demand table, a
    /// `ThrottlingException`, with the limit and its table or index.
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

    /// Returns whether the store caused the error, such as by a damaged disk, and not the client.
    pub(crate) fn is_of_server(&self) -> bool {
        self.error_type.status() >= 500
    }

    /// Converts the error of one operation into the reason why its transaction is cancelled.
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

    /// Creates an `IdempotentParameterMismatchException`: the token belongs to another transaction.
    #[must_use]
    pub fn token_mismatch() -> Self {
        Self::new(
            ErrorType::IdempotentParameterMismatch,
            "Request parameters do not match the parameters of the earlier request with this client request token",
        )
    }

    /// Creates an `ExpiredIteratorException`: the iterator is older than 15 minutes.
    #[must_use]
    pub fn expired_iterator(age_ms: u64, life_ms: u64) -> Self {
        Self::new(
            ErrorType::ExpiredIterator,
            format!(
                "The provided iterator exceeds the maximum age allowed: it was created {age_ms} \
                 milliseconds ago, the maximum is {life_ms}; request a new iterator"
            ),
        )
    }

    /// Creates a `TrimmedDataAccessException`: the records were removed after 24 hours.
    #[must_use]
    pub fn trimmed() -> Self {
        Self::new(
            ErrorType::TrimmedDataAccess,
            "The operation attempted to read past the oldest stream record in a shard: records \
             older than 24 hours are removed",
        )
    }

    /// Creates an `InternalServerError` for a bug in this store, and logs the reason.
    #[must_use]
    pub fn defect(reason: &str) -> Self {
        tracing::error!(reason, "a request failed because of a defect in the store");
        Self::new(
            ErrorType::InternalServerError,
            "The request failed because of a defect in the store",
        )
    }

    /// Adapts the error to a PartiQL statement. The failed condition of an insert becomes the error
    /// for an item that already exists.
    pub(crate) fn for_insert(self, is_insert: bool) -> Self {
        if is_insert && self.error_type == ErrorType::ConditionalCheckFailed {
            return Self::new(ErrorType::DuplicateItem, DUPLICATE_ITEM);
        }
        self
    }

    /// Adds a prefix to the message if the error is a `ValidationException`.
    pub(crate) fn prefixed(mut self, prefix: &str) -> Self {
        if self.error_type == ErrorType::Validation {
            self.message.insert_str(0, prefix);
        }
        self
    }

    /// Returns the code of the error in the result of one statement of a batch. Returns `None` if the
    /// error fails the entire request.
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

    /// Returns whether the error can be the reason of a single operation in a cancelled
    /// transaction.
    pub(crate) fn is_of_operation(&self) -> bool {
        matches!(self.error_type, ErrorType::Validation | ErrorType::ResourceNotFound)
    }

    /// Returns whether the error means that a table or another resource does not exist. On a follower,
    /// such an error can be wrong, because the follower may not have applied the creation yet.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self.error_type, ErrorType::ResourceNotFound | ErrorType::TableNotFound)
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether the error is a `ResourceNotFoundException`.
    pub(super) fn is_resource_not_found(&self) -> bool {
        self.error_type == ErrorType::ResourceNotFound
    }

    /// Returns the response with its status and body.
    #[must_use]
    pub fn to_response(&self) -> Response {
        let mut body = String::with_capacity(160 + self.message.len());
        body.push_str("{\"__type\":");
        json::write_string(&mut body, self.error_type.name());
        if !self.message.is_empty() {
            // These error types spell the member `Message`; SDKs accept both spellings.
            // LocalStack's AWS snapshots show the capital letter for a failed condition with its
            // item (`test_return_values_on_conditions_check_failure`).
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
            // The two throttling errors also differ in the spelling of their members (AWS API
            // reference).
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

/// Returns the message for a request that exceeds a throughput limit. Source: AWS, "Transaction
/// conflict handling", reasons for cancellation, which have the same messages.
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

/// Logs the reason instead of returning it, because a response must not reveal the contents of the
/// disk.
impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        tracing::error!(%error, "a request could not read from storage");
        Self::new(ErrorType::InternalServerError, "The request could not read the store's data")
    }
}

/// Returns an error that SDKs do not retry, because a retry fails until the client uses the new endpoint.
impl From<HandedOver> for ApiError {
    fn from(error: HandedOver) -> Self {
        Self::validation(error.to_string())
    }
}

/// Converts each variant to an error that SDKs retry. After [`Unavailable::Unknown`], the client cannot
/// know whether the request was executed.
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
    fn errors_are_written_as_by_the_service() {
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
