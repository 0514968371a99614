//! The types of errors, with DynamoDB's names and HTTP statuses.
//!
//! The module `error` has the messages.

/// The type of an error, named as in DynamoDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorType {
    Validation,
    AccessDenied,
    Serialization,
    UnknownOperation,
    MissingAuthenticationToken,
    IncompleteSignature,
    UnrecognizedClient,
    InvalidSignature,
    RequestTooLarge,
    ResourceNotFound,
    ResourceInUse,
    LimitExceeded,
    ConditionalCheckFailed,
    TransactionCanceled,
    TransactionConflict,
    TransactionInProgress,
    IdempotentParameterMismatch,
    ItemCollectionSizeLimitExceeded,
    ProvisionedThroughputExceeded,
    Throttling,
    ExpiredIterator,
    TrimmedDataAccess,
    PolicyNotFound,
    TableNotFound,
    DuplicateItem,
    InternalServerError,
    ServiceUnavailable,
}

impl ErrorType {
    /// Returns the value of `__type`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Validation => "com.amazon.coral.validate#ValidationException",
            Self::AccessDenied => "com.amazon.coral.service#AccessDeniedException",
            Self::Serialization => "com.amazon.coral.service#SerializationException",
            Self::UnknownOperation => "com.amazon.coral.service#UnknownOperationException",
            Self::MissingAuthenticationToken => {
                "com.amazon.coral.service#MissingAuthenticationTokenException"
            }
            Self::IncompleteSignature => "com.amazon.coral.service#IncompleteSignatureException",
            Self::UnrecognizedClient => "com.amazon.coral.service#UnrecognizedClientException",
            Self::InvalidSignature => "com.amazon.coral.service#InvalidSignatureException",
            Self::RequestTooLarge => "com.amazon.coral.service#RequestEntityTooLargeException",
            Self::ResourceNotFound => "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException",
            Self::ResourceInUse => "com.amazonaws.dynamodb.v20120810#ResourceInUseException",
            Self::LimitExceeded => "com.amazonaws.dynamodb.v20120810#LimitExceededException",
            Self::ConditionalCheckFailed => {
                "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
            }
            Self::TransactionCanceled => {
                "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
            }
            Self::TransactionConflict => {
                "com.amazonaws.dynamodb.v20120810#TransactionConflictException"
            }
            Self::TransactionInProgress => {
                "com.amazonaws.dynamodb.v20120810#TransactionInProgressException"
            }
            Self::IdempotentParameterMismatch => {
                "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException"
            }
            Self::ItemCollectionSizeLimitExceeded => {
                "com.amazonaws.dynamodb.v20120810#ItemCollectionSizeLimitExceededException"
            }
            Self::ProvisionedThroughputExceeded => {
                "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
            }
            Self::Throttling => "com.amazonaws.dynamodb.v20120810#ThrottlingException",
            Self::ExpiredIterator => "com.amazonaws.dynamodb.v20120810#ExpiredIteratorException",
            Self::TrimmedDataAccess => {
                "com.amazonaws.dynamodb.v20120810#TrimmedDataAccessException"
            }
            Self::PolicyNotFound => "com.amazonaws.dynamodb.v20120810#PolicyNotFoundException",
            Self::DuplicateItem => "com.amazonaws.dynamodb.v20120810#DuplicateItemException",
            Self::TableNotFound => "com.amazonaws.dynamodb.v20120810#TableNotFoundException",
            Self::InternalServerError => "com.amazonaws.dynamodb.v20120810#InternalServerError",
            Self::ServiceUnavailable => "com.amazon.coral.service#ServiceUnavailableException",
        }
    }

    /// Returns the HTTP status.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::RequestTooLarge => 413,
            Self::InternalServerError => 500,
            Self::ServiceUnavailable => 503,
            Self::Validation
            | Self::AccessDenied
            | Self::Serialization
            | Self::UnknownOperation
            | Self::MissingAuthenticationToken
            | Self::IncompleteSignature
            | Self::UnrecognizedClient
            | Self::InvalidSignature
            | Self::ResourceNotFound
            | Self::ResourceInUse
            | Self::LimitExceeded
            | Self::ConditionalCheckFailed
            | Self::TransactionCanceled
            | Self::TransactionConflict
            | Self::TransactionInProgress
            | Self::IdempotentParameterMismatch
            | Self::ItemCollectionSizeLimitExceeded
            | Self::ProvisionedThroughputExceeded
            | Self::Throttling
            | Self::ExpiredIterator
            | Self::TrimmedDataAccess
            | Self::PolicyNotFound
            | Self::DuplicateItem
            | Self::TableNotFound => 400,
        }
    }
}
