//! Requests and responses whose items are not converted to the SDK's values. `model::json` encodes and
//! decodes these items at a fraction of the cost.
//!
//! The SDK still does everything else: endpoint, credentials, signature, retries, timeouts, errors. An
//! interceptor replaces the body of a request right before the first attempt, and keeps the body of a
//! successful response.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextMut, BeforeTransmitInterceptorContextMut,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{Error, Output};
use aws_smithy_runtime_api::client::orchestrator::OrchestratorError;
use aws_smithy_runtime_api::client::ser_de::{DeserializeResponse, SharedResponseDeserializer};
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use locks::Mutex;
use model::Item;
use model::json::item_from_str;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// The body of a response; empty until the response has arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer(Arc<Mutex<Option<SdkBody>>>);

/// The interceptor of an operation. `O` is the SDK's output, which stays empty.
#[derive(Debug)]
pub(crate) struct Direct<O> {
    body: Option<Bytes>,
    kept: KeepBody<O>,
}

/// A deserializer that keeps the body of a response, and returns an empty output to the SDK.
#[derive(Debug)]
struct KeepBody<O> {
    answer: Answer,
    empty: fn() -> O,
}

impl Answer {
    /// Decodes the body with `read`. Returns `None` if the body cannot be decoded or no response
    /// arrived.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        read(self.take()?.bytes()?)
    }

    /// Returns the body as a page; `None` if it is not a page or no response arrived.
    pub(crate) fn page(&self) -> Option<UnreadPage> {
        UnreadPage::of(self.take()?)
    }

    fn take(&self) -> Option<SdkBody> {
        self.0.lock().take()
    }
}

/// Returns an interceptor, and the response body that it keeps. `empty` returns an empty output.
pub(crate) fn answered<O>(empty: fn() -> O) -> (Direct<O>, Answer) {
    let answer = Answer::default();
    (Direct { body: None, kept: KeepBody { answer: answer.clone(), empty } }, answer)
}

/// Returns an interceptor that also replaces the body of the request, and the response body that it
/// keeps.
pub(crate) fn exchanged<O>(body: String, empty: fn() -> O) -> (Direct<O>, Answer) {
    let (direct, answer) = answered(empty);
    (Direct { body: Some(Bytes::from(body)), ..direct }, answer)
}

impl<O: Debug + Send + Sync + 'static> Intercept for Direct<O> {
    fn name(&self) -> &'static str {
        "Direct"
    }

    fn modify_before_retry_loop(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(body) = &self.body {
            let request = context.request_mut();
            request.headers_mut().insert("content-length", body.len().to_string());
            *request.body_mut() = SdkBody::from(body.clone());
        }
        Ok(())
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // The SDK decodes error responses.
        if context.response().status().is_success() {
            let KeepBody { answer, empty } = &self.kept;
            let kept = KeepBody { answer: answer.clone(), empty: *empty };
            config.interceptor_state().store_put(SharedResponseDeserializer::new(kept));
        }
        Ok(())
    }
}

impl<O: Debug + Send + Sync + 'static> DeserializeResponse for KeepBody<O> {
    fn deserialize_nonstreaming_with_config(
        &self,
        response: &HttpResponse,
        _: &ConfigBag,
    ) -> Result<Output, OrchestratorError<Error>> {
        let body = response.body().try_clone().filter(|_| response.status().is_success());
        let Some(body) = body else {
            // An earlier attempt was interrupted after its successful response had begun, and the
            // current attempt failed. The SDK retries.
            let status = response.status().as_u16();
            return Err(OrchestratorError::response(format!("status {status}").into()));
        };
        *self.answer.0.lock() = Some(body);
        Ok(Output::erase((self.empty)()))
    }
}

/// Returns the failure for a response that does not have the form of the operation's response. A
/// proxy may have sent it.
pub(crate) fn unreadable(doing: &str, table: &str) -> Failure {
    Failure::Retry(format!("{doing} on table=`{table}`: the response cannot be decoded"))
}

/// The items of a page, and the key after which the next page begins.
pub(crate) type Page = (Vec<Item>, Option<Item>);

#[derive(Deserialize)]
struct PageBody<'b> {
    #[serde(borrow, rename = "Items", default)]
    items: Vec<&'b RawValue>,
    #[serde(borrow, rename = "LastEvaluatedKey")]
    last_evaluated_key: Option<&'b RawValue>,
}

/// A page in encoded form. Its items are decoded when they are needed, because a decoded item takes
/// several times the memory of its text, and a page has hundreds of items.
#[derive(Debug)]
pub(crate) struct UnreadPage {
    body: SdkBody,
    /// The position of each item's text in the body.
    items: Vec<Range<usize>>,
    /// The key after which the next page begins.
    pub(crate) next: Option<Item>,
}

impl UnreadPage {
    fn of(body: SdkBody) -> Option<Self> {
        let bytes = body.bytes()?;
        let page: PageBody<'_> = serde_json::from_slice(bytes).ok()?;
        let place = |raw: &&RawValue| {
            let start = (raw.get().as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
            Some(start..start + raw.get().len())
        };
        let items = page.items.iter().map(place).collect::<Option<_>>()?;
        let next = page.next()?;
        Some(Self { body, items, next })
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Decodes the items one by one. Yields `None` for an item that cannot be decoded.
    pub(crate) fn items(&self) -> impl Iterator<Item = Option<Item>> {
        let bytes = self.body.bytes().unwrap_or_default();
        self.items.iter().map(move |place| {
            let text = str::from_utf8(bytes.get(place.clone())?).ok()?;
            item_from_str(text).ok()
        })
    }
}

impl PageBody<'_> {
    /// Returns the key after which the next page begins; the outer `None` if the key cannot be
    /// decoded.
    fn next(&self) -> Option<Option<Item>> {
        match self.last_evaluated_key {
            Some(raw) => item_from_str(raw.get()).ok().map(Some),
            None => Some(None),
        }
    }
}

/// Decodes the response to a `Scan` or a `Query`; `None` if it cannot be decoded.
pub(crate) fn page_of(body: &[u8]) -> Option<Page> {
    let page: PageBody<'_> = serde_json::from_slice(body).ok()?;
    let next = page.next()?;
    let item = |raw: &&RawValue| item_from_str(raw.get()).ok();
    Some((page.items.iter().map(item).collect::<Option<_>>()?, next))
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::error::ProvideErrorMetadata;
    use aws_sdk_dynamodb::operation::scan::ScanOutput;
    use model::AttributeValue;

    use super::*;
    use crate::tables::scripted::{endpoint, serve};
    use crate::tables::statements::{StatementOutcome, Statements};

    #[tokio::test]
    async fn statements_are_sent_as_they_were_written_also_again() {
        let (listener, client) = endpoint().await;
        let mut statements = Statements::default();
        for (text, values) in [
            (r#""DELETE FROM \"t\" WHERE k = ?""#, &[AttributeValue::from("é")][..]),
            (r#""x""#, &[AttributeValue::Null, AttributeValue::Bool(true)]),
            (r#""y""#, &[AttributeValue::Null]),
        ] {
            statements.push_written(text, |written| values.iter().for_each(|v| written.push(v)));
        }
        let answers = [
            ("500 Internal Server Error", "{}"),
            (
                "200 OK",
                r#"{"Responses":[{"TableName":"t"},{"Error":{"Code":"ConditionalCheckFailed","Message":"m"}},{"Error":{"Code":"DuplicateItem","Message":"m"}}]}"#,
            ),
        ];
        let (requests, outcomes) =
            tokio::join!(serve(listener, &answers), statements.send(&client));
        let expected =
            [StatementOutcome::Done, StatementOutcome::ConditionFailed, StatementOutcome::Failed];
        assert_eq!(outcomes, expected);
        let body = r#"{"Statements":[{"Statement":"DELETE FROM \"t\" WHERE k = ?","Parameters":[{"S":"é"}]},{"Statement":"x","Parameters":[{"NULL":true},{"BOOL":true}]},{"Statement":"y","Parameters":[{"NULL":true}]}]}"#;
        assert_eq!(requests.len(), 2);
        for request in requests {
            assert!(request.to_lowercase().contains("batchexecutestatement"), "{request}");
            assert_eq!(request.split_once("\r\n\r\n").unwrap().1, body);
        }
    }

    #[tokio::test]
    async fn pages_are_read_here_and_errors_by_the_sdk() {
        let (listener, client) = endpoint().await;
        let answers = [
            (
                "200 OK",
                r#"{"Count":1,"Items":[{"a":{"N":"1.50"},"b":{"L":[{"S":"x"}]}}],"LastEvaluatedKey":{"a":{"N":"7"}}}"#,
            ),
            ("200 OK", r#"{"Items":[{"a":{"N":"x"}}]}"#),
            ("200 OK", r#"{"Items":[],"ScannedCount":0}"#),
            (
                "400 Bad Request",
                r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"m"}"#,
            ),
        ];
        let scan = async || {
            let (direct, answer) = answered(|| ScanOutput::builder().build());
            let sent = client.scan().table_name("t").customize().interceptor(direct).send().await;
            sent.map(|_| {
                let body = answer.take()?;
                let page = page_of(body.bytes()?);
                // A page whose items are decoded later contains the same items.
                let later = UnreadPage::of(body).and_then(|page| {
                    assert_eq!(page.len(), page.items().count());
                    Some((page.items().collect::<Option<Vec<_>>>()?, page.next))
                });
                assert_eq!(later, page);
                page
            })
        };
        let scans = async { [scan().await, scan().await, scan().await, scan().await] };
        let (_, [page, wrong, empty, missing]) = tokio::join!(serve(listener, &answers), scans);
        let (items, next) = page.unwrap().unwrap();
        let expected = item_from_str(r#"{"a":{"N":"1.5"},"b":{"L":[{"S":"x"}]}}"#).unwrap();
        assert_eq!((items, next), (vec![expected], item_from_str(r#"{"a":{"N":"7"}}"#).ok()));
        assert_eq!(wrong.unwrap(), None);
        assert_eq!(empty.unwrap(), Some((Vec::new(), None)));
        let error = missing.unwrap_err();
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
        assert_eq!(code, Some("ResourceNotFoundException"));
    }
}
