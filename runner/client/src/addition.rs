//! Classifies errors of an `ADD` update: either DynamoDB certainly did not apply the addition, or
//! it may have applied the addition.
//!
//! `ADD` is not idempotent: if a response is lost, a retry may count twice. Therefore the SDK's own
//! retries are off, and every caller classifies an error with this module before a retry.

use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use crate::sdk_error::{is_throttle, was_never_sent};

/// The state of an `ADD` after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// Not applied: another write to the item conflicted with it.
    Contended,
    /// Not applied: the request was throttled.
    Throttled,
    /// Not applied: the request was not sent.
    Unsent,
    /// Not applied, and a retry would fail too.
    Refused,
    /// Possibly applied.
    Perhaps,
}

impl Addition {
    /// Classifies an error of one attempt.
    pub fn after<E>(error: &SdkError<E>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match error {
            SdkError::ServiceError(answered) => {
                Self::answered(answered.err().code(), answered.raw().status().as_u16())
            }
            _ if was_never_sent(error) => Self::Unsent,
            _ => Self::Perhaps,
        }
    }

    /// Classifies an error response.
    pub fn answered(code: Option<&str>, status: u16) -> Self {
        match code {
            Some("TransactionConflictException" | "TransactionInProgressException") => {
                Self::Contended
            }
            Some(code) if is_throttle(code) => Self::Throttled,
            // A 4xx response means that the service did nothing; after any other error it may have
            // applied the addition.
            Some(_) if (400..500).contains(&status) => Self::Refused,
            _ => Self::Perhaps,
        }
    }
}

/// Returns a client configuration without retries, because a retried `ADD` may count twice.
pub fn once() -> Builder {
    Builder::new().retry_config(RetryConfig::disabled())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint;
    use testing::proxy;

    #[test]
    fn only_what_is_refused_was_certainly_not_made() {
        for (code, status, expected) in [
            (Some("TransactionConflictException"), 400, Addition::Contended),
            (Some("ProvisionedThroughputExceededException"), 400, Addition::Throttled),
            (Some("ValidationException"), 400, Addition::Refused),
            (Some("InternalServerError"), 500, Addition::Perhaps),
            (None, 400, Addition::Perhaps),
            (None, 503, Addition::Perhaps),
        ] {
            assert_eq!(Addition::answered(code, status), expected, "{code:?} {status}");
        }
    }

    #[tokio::test]
    async fn a_refused_addition_was_not_made_and_an_unanswered_one_may_have_been() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", taken.local_addr().unwrap());
        drop(taken);
        let after = async |url: &str| {
            let request = endpoint::client(url).list_tables().customize();
            Addition::after(&request.config_override(once()).send().await.unwrap_err())
        };
        assert_eq!(after(&url).await, Addition::Unsent);
        let silent = proxy::that_closes().await;
        assert_eq!(after(&silent).await, Addition::Perhaps);
    }
}
