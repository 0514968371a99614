//! What an error says of an addition (`ADD`): that it was not made, or that it may have been.
//!
//! An addition whose answer was lost may have been made, and one that is made again would count twice.
//! So whoever adds asks here before another attempt, and has the SDK make none of its own.

use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use client::sdk_error::{is_throttle, was_never_sent};

/// What is known of an addition after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addition {
    /// It was not made, because another write was at its item.
    Contended,
    /// It was not made, because too much is asked for at the moment.
    Throttled,
    /// It was not made: nobody took the request.
    Unsent,
    /// It was not made, and would not be.
    Refused,
    /// It may have been made.
    Perhaps,
}

impl Addition {
    /// What an error of one attempt says.
    pub(crate) fn after<E>(error: &SdkError<E>) -> Self
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

    /// What an answer says that is no success.
    pub(crate) fn answered(code: Option<&str>, status: u16) -> Self {
        match code {
            Some("TransactionConflictException" | "TransactionInProgressException") => {
                Self::Contended
            }
            Some(code) if is_throttle(code) => Self::Throttled,
            // What the service refuses it has not done; at any other error it may have been about to.
            Some(_) if (400..500).contains(&status) => Self::Refused,
            _ => Self::Perhaps,
        }
    }
}

/// Makes the SDK send a request once.
pub(crate) fn once() -> Builder {
    Builder::new().retry_config(RetryConfig::disabled())
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::endpoint;
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
    async fn what_nobody_took_was_not_made_and_what_was_not_answered_may_have_been() {
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
