//! Formats a failed request for people: the service's message, or the endpoint that does not respond.
//!
//! The full text of an SDK error is too long to be useful, because it includes all headers.

use std::error::Error;
use std::fmt;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::FinalizerInterceptorContextMut;
use aws_smithy_runtime_api::client::orchestrator::OrchestratorError;
use aws_smithy_runtime_api::client::result::{ConnectorError, SdkError};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::error_cause::{causes, innermost};
use crate::failure::Failure;
use crate::keys;

/// Advice for a local endpoint that does not respond.
pub const IS_UP_RUNNING: &str = "; is `weir up` still running?";

/// The error of an endpoint that gave no response.
#[derive(Debug)]
pub struct NoAnswer {
    url: String,
    reason: String,
    /// The advice at the end of the message.
    advice: &'static str,
    /// Whether no attempt made a connection, so that no request was sent.
    is_unreached: bool,
}

impl NoAnswer {
    /// Returns the error of an endpoint with its cause. For a local endpoint, the error has advice
    /// about `weir up`; for AWS, it has no advice.
    pub fn new(url: &str, cause: &(dyn Error + 'static)) -> Self {
        let is_on_aws = url.contains(".amazonaws.com");
        Self::with_advice(url, cause, if is_on_aws { "" } else { IS_UP_RUNNING })
    }

    /// Returns the error of an endpoint with its cause and this advice.
    pub fn with_advice(url: &str, cause: &(dyn Error + 'static), advice: &'static str) -> Self {
        let is_unreached = causes(cause)
            .filter_map(|cause| cause.downcast_ref::<hyper_util::client::legacy::Error>())
            .any(hyper_util::client::legacy::Error::is_connect);
        Self { url: url.to_owned(), reason: innermost(cause), advice, is_unreached }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` does not answer ({}){}", self.url, self.reason, self.advice)
    }
}

impl Error for NoAnswer {}

impl From<NoAnswer> for Failure {
    fn from(error: NoAnswer) -> Self {
        let text = error.to_string();
        if error.is_unreached { Self::Retry(text) } else { Self::Unknown(text) }
    }
}

impl<E, R> From<&SdkError<E, R>> for Failure
where
    E: Error + ProvideErrorMetadata + 'static,
    R: fmt::Debug + 'static,
{
    fn from(error: &SdkError<E, R>) -> Self {
        let text = error_text(error);
        let code = error.as_service_error().map(|service| service.code().unwrap_or_default());
        match code {
            Some(code) if is_throttle(code) => Self::Retry(text),
            // `InternalError` is the code of S3.
            Some("InternalServerError" | "InternalError" | "ServiceUnavailable" | "") => {
                Self::Unknown(text)
            }
            Some(_) => Self::Fatal(text),
            None if cannot_be_sent(error) => Self::Fatal(text),
            None if was_never_sent(error) => Self::Retry(text),
            // Without a response, an attempt may have been applied.
            None => Self::Unknown(text),
        }
    }
}

impl<E, R> From<SdkError<E, R>> for Failure
where
    E: Error + ProvideErrorMetadata + 'static,
    R: fmt::Debug + 'static,
{
    fn from(error: SdkError<E, R>) -> Self {
        Self::from(&error)
    }
}

/// A mark of a request that an earlier attempt may have sent.
#[derive(Debug)]
struct PerhapsSent;

impl Storable for PerhapsSent {
    type Storer = StoreReplace<Self>;
}

/// A client plug-in that adds the endpoint's address to connection errors.
#[derive(Debug)]
pub struct NamesEndpoint(pub String);

impl Intercept for NamesEndpoint {
    fn name(&self) -> &'static str {
        "NamesEndpoint"
    }

    fn modify_before_attempt_completion(
        &self,
        context: &mut FinalizerInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        request: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut is_unreached = false;
        if let Some(Err(error)) = context.output_or_error_mut()
            && let Some(cause) = error.as_connector_error().filter(|cause| cause.is_io())
        {
            let mut unanswered = NoAnswer::new(&self.0, cause);
            is_unreached = unanswered.is_unreached;
            // The SDK retries, so an attempt before this one may have been applied.
            unanswered.is_unreached &= request.load::<PerhapsSent>().is_none();
            // The error stays a connection error, so the SDK still retries it.
            *error = OrchestratorError::connector(ConnectorError::io(Box::new(unanswered)));
        }
        if !is_unreached {
            request.interceptor_state().store_put(PerhapsSent);
        }
        Ok(())
    }
}

/// Returns the service's message; if the service sent no message, returns why there is no response.
pub fn error_text<E, R>(error: &SdkError<E, R>) -> String
where
    E: Error + ProvideErrorMetadata + 'static,
    R: fmt::Debug + 'static,
{
    match error {
        SdkError::ServiceError(failed) => match (failed.err().code(), failed.err().message()) {
            (Some(code), Some(message)) => format!("{code}: {message}{}", keys::advice(code)),
            (Some(code), None) => code.to_owned(),
            (None, _) => {
                format!("the response is not from an AWS service ({}); check the address", {
                    innermost(failed.err())
                })
            }
        },
        SdkError::DispatchFailure(_) => causes(error)
            .find_map(|cause| match cause.downcast_ref::<CredentialsError>() {
                Some(missing) => Some(keys::not_found(missing)),
                None => cause.downcast_ref::<NoAnswer>().map(ToString::to_string),
            })
            .unwrap_or_else(|| format!("the endpoint does not answer ({})", innermost(error))),
        SdkError::TimeoutError(_) => "the endpoint timed out".to_owned(),
        SdkError::ResponseError(_) => {
            format!("the response cannot be read ({}); check the address", innermost(error))
        }
        _ => format!("cannot build the request: {}", innermost(error)),
    }
}

/// Returns true if the service reports that the resource does not exist.
pub fn is_not_found<E, R>(error: &SdkError<E, R>) -> bool
where
    E: Error + ProvideErrorMetadata + 'static,
{
    matches!(code_of(error), Some("ResourceNotFoundException" | "NoSuchBucket"))
}

/// Returns true if the condition of a write was false, so that nothing was written.
pub fn is_condition_failed<E, R>(error: &SdkError<E, R>) -> bool
where
    E: Error + ProvideErrorMetadata + 'static,
{
    code_of(error) == Some("ConditionalCheckFailedException")
}

/// Returns true if a write with a condition was applied, false if its condition was false.
///
/// # Errors
/// Any other failure of the request.
pub fn was_applied<T, E, R>(sent: Result<T, SdkError<E, R>>) -> Result<bool, Failure>
where
    E: Error + ProvideErrorMetadata + 'static,
    R: fmt::Debug + 'static,
{
    match sent {
        Ok(_) => Ok(true),
        Err(error) if is_condition_failed(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn code_of<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

/// Returns true if a request was certainly not sent.
pub fn was_never_sent<E, R>(error: &SdkError<E, R>) -> bool
where
    E: Error + 'static,
    R: fmt::Debug + 'static,
{
    match error {
        SdkError::ConstructionFailure(_) => true,
        SdkError::DispatchFailure(_) => causes(error)
            .filter_map(|cause| cause.downcast_ref::<NoAnswer>())
            .any(|unanswered| unanswered.is_unreached),
        _ => false,
    }
}

/// Returns true if there are no credentials, or the request is invalid. The request was not sent,
/// and a retry fails too.
fn cannot_be_sent<E, R>(error: &SdkError<E, R>) -> bool
where
    E: Error + 'static,
    R: fmt::Debug + 'static,
{
    match error {
        SdkError::ConstructionFailure(_) => true,
        SdkError::DispatchFailure(_) => causes(error).any(|cause| cause.is::<CredentialsError>()),
        _ => false,
    }
}

/// Returns true for an error code of throttling, after which no write was applied. The reasons of
/// cancelled transactions have other codes.
pub fn is_throttle(code: &str) -> bool {
    matches!(
        code,
        "ThrottlingException"
            | "ThrottlingError"
            | "ProvisionedThroughputExceededException"
            | "ProvisionedThroughputExceeded"
            | "RequestLimitExceeded"
            // The code of S3.
            | "SlowDown"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint;

    /// Returns an address without a listener.
    fn nowhere() -> String {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", taken.local_addr().unwrap())
    }

    #[tokio::test]
    async fn an_endpoint_that_does_not_answer_is_named() {
        let url = nowhere();
        let (start, end) =
            (format!("`{url}` does not answer (Connection refused"), "is `weir up` still running?");
        let dynamodb = endpoint::client(&url).list_tables().send().await.unwrap_err();
        let streams = endpoint::streams_client(&url).list_streams().send().await.unwrap_err();
        let s3 = endpoint::s3_client(&url).list_buckets().send().await.unwrap_err();
        let failures = [Failure::from(&dynamodb), Failure::from(&streams), Failure::from(&s3)];
        for said in failures {
            let Failure::Retry(said) = said else { panic!("{said:?}") };
            assert!(said.starts_with(&start) && said.ends_with(end), "{said}");
        }
        let said = endpoint::admin(http::Method::GET, &url, "clock", &serde_json::Value::Null);
        let said = said.await.unwrap_err().to_string();
        assert!(said.starts_with(&start) && said.ends_with(end), "{said}");
    }

    /// The first attempt may have been applied, but its response is lost. The endpoint is
    /// unreachable when the SDK retries.
    #[tokio::test]
    async fn an_attempt_before_an_unreached_one_may_have_been_applied() {
        use tokio::io::AsyncReadExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = endpoint::client(&format!("http://{}", listener.local_addr().unwrap()));
        let hang_up = async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.read(&mut [0; 1_024]).await.unwrap()
        };
        let (read, sent) = tokio::join!(hang_up, client.list_tables().send());
        assert!(read > 0);
        let failure = Failure::from(sent.unwrap_err());
        assert!(
            matches!(&failure, Failure::Unknown(text) if text.contains("refused")),
            "{failure:?}"
        );
    }

    #[test]
    fn a_code_has_its_kind_of_failure() {
        use aws_sdk_dynamodb::error::ErrorMetadata;
        use aws_sdk_s3::operation::put_object::PutObjectError;
        type Kind = fn(String) -> Failure;
        let kinds: [(Kind, &[&str]); 3] = [
            (Failure::Retry, &["ThrottlingException", "RequestLimitExceeded", "SlowDown"]),
            (Failure::Unknown, &["InternalServerError", "InternalError", "ServiceUnavailable"]),
            (Failure::Fatal, &["AccessDenied", "NoSuchBucket", "ValidationException"]),
        ];
        for (kind, codes) in kinds {
            for code in codes {
                let error = PutObjectError::generic(ErrorMetadata::builder().code(*code).build());
                let error = SdkError::service_error(error, "headers");
                assert_eq!(Failure::from(error), kind((*code).to_owned()));
            }
        }
    }

    #[test]
    fn a_service_speaks_for_itself() {
        use aws_sdk_dynamodb::error::ErrorMetadata;
        use aws_sdk_dynamodb::operation::get_item::GetItemError;
        let of = |metadata| {
            error_text(&SdkError::service_error(GetItemError::generic(metadata), "headers"))
        };
        let said = ErrorMetadata::builder().code("ThrottlingException").message("slowly").build();
        assert_eq!(of(said), "ThrottlingException: slowly");
        assert_eq!(of(ErrorMetadata::builder().code("AccessDenied").build()), "AccessDenied");
        let nothing = of(ErrorMetadata::builder().build());
        assert!(nothing.ends_with("check the address"), "{nothing}");
        assert!(!nothing.contains("headers"), "{nothing}");
    }

    #[test]
    fn a_request_without_keys_says_what_to_set() {
        use aws_sdk_dynamodb::operation::get_item::GetItemError;
        let reason = CredentialsError::not_loaded("no profile `shop`");
        let failed = ConnectorError::other(Box::new(reason), None);
        let failure = Failure::from(SdkError::<GetItemError, String>::dispatch_failure(failed));
        let Failure::Fatal(said) = failure else { panic!("{failure:?}") };
        assert!(said.starts_with("no AWS credentials found: set AWS_PROFILE"), "{said}");
        assert!(said.ends_with("(no profile `shop`)"), "{said}");
    }
}
