//! Reads pages of stream records without converting items to the SDK's values. The JSON of the
//! items is copied unchanged into Lambda's events, which is much faster than a conversion.
//!
//! The SDK does everything else: endpoint, credentials, signature, retries, timeouts and errors. An
//! interceptor takes the body of a successful response.

use std::sync::Arc;

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::config::http::HttpResponse;
use aws_sdk_dynamodbstreams::config::interceptors::BeforeDeserializationInterceptorContextMut;
use aws_sdk_dynamodbstreams::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodbstreams::error::{BoxError, SdkError};
use aws_sdk_dynamodbstreams::operation::get_records::{GetRecordsError, GetRecordsOutput};
use aws_smithy_runtime_api::client::interceptors::context::{Error, Output};
use aws_smithy_runtime_api::client::orchestrator::OrchestratorError;
use aws_smithy_runtime_api::client::ser_de::{DeserializeResponse, SharedResponseDeserializer};
use aws_smithy_types::body::SdkBody;
use locks::Mutex;
use model::stream_record::{PageError, PageRecord, RecordsPage};

use mapping::{Record, SequenceNumber};

/// One page of a shard.
#[derive(Debug)]
pub struct Page {
    /// The records, in the order of the shard.
    pub records: Vec<Record>,
    /// The iterator of the next page; `None` when the shard has ended.
    pub next_iterator: Option<String>,
}

/// The reason why a page was not read.
#[derive(Debug, thiserror::Error)]
pub enum PageFailure {
    /// The request failed.
    #[error(transparent)]
    Request(Box<SdkError<GetRecordsError>>),
    /// The response does not have the form of the Streams API.
    #[error(transparent)]
    Unreadable(#[from] PageError),
    /// The request succeeded, but the interceptor has no body of its response.
    #[error("GetRecords returned an empty response")]
    Nothing,
}

/// Reads the page at an iterator of a stream, with at most `limit` records, or as many as the service returns.
///
/// # Errors
/// See [`PageFailure`]; nothing was read.
pub async fn read_page(
    client: &Client,
    stream_arn: &str,
    iterator: String,
    limit: Option<i32>,
) -> Result<Page, PageFailure> {
    let kept = KeepBody::default();
    let request = client.get_records().shard_iterator(iterator).set_limit(limit).customize();
    let sent = request.interceptor(kept.clone()).send().await;
    sent.map_err(|error| PageFailure::Request(Box::new(error)))?;
    let body = kept.0.lock().take();
    let body = body.as_ref().and_then(SdkBody::bytes).ok_or(PageFailure::Nothing)?;
    Ok(page_of(body, stream_arn)?)
}

/// Reads the body of a response with records of a stream.
///
/// # Errors
/// The body does not have the form of the Streams API.
pub(crate) fn page_of(body: &[u8], stream_arn: &str) -> Result<Page, PageError> {
    let page = RecordsPage::read(body, stream_arn, region_of(stream_arn))?;
    let records = page.records.into_iter().map(record_of).collect();
    Ok(Page { records, next_iterator: page.next_shard_iterator })
}

fn record_of(record: PageRecord) -> Record {
    let PageRecord { sequence_number, creation_seconds, keys, lambda_json } = record;
    let sequence = SequenceNumber::from(&sequence_number);
    Record::new(sequence, creation_seconds, keys, lambda_json)
}

/// Returns the region in an ARN (`arn:partition:service:region:…`); empty if there is none.
fn region_of(arn: &str) -> &str {
    arn.split(':').nth(3).unwrap_or_default()
}

/// An interceptor that takes the body of a successful response, and gives the SDK a response
/// without records to parse.
#[derive(Clone, Debug, Default)]
struct KeepBody(Arc<Mutex<Option<SdkBody>>>);

impl Intercept for KeepBody {
    fn name(&self) -> &'static str {
        "KeepBody"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // The SDK handles error responses.
        if context.response().status().is_success() {
            config.interceptor_state().store_put(SharedResponseDeserializer::new(self.clone()));
        }
        Ok(())
    }
}

impl DeserializeResponse for KeepBody {
    fn deserialize_nonstreaming_with_config(
        &self,
        response: &HttpResponse,
        _: &ConfigBag,
    ) -> Result<Output, OrchestratorError<Error>> {
        let body = response.body().try_clone().filter(|_| response.status().is_success());
        let Some(body) = body else {
            // An earlier attempt got an incomplete response, and a later attempt failed. The SDK
            // retries.
            let status = response.status().as_u16();
            return Err(OrchestratorError::response(format!("status {status}").into()));
        };
        *self.0.lock() = Some(body);
        Ok(Output::erase(GetRecordsOutput::builder().build()))
    }
}
