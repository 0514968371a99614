//! Server-sent events, which notify an open page that its data changed.
//!
//! The console samples the counters of `weir up` twice a second, and sends an event if they
//! changed. So the number of events does not depend on the number of records.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::body::Body;
use crate::clock;
use crate::context::Context;
use crate::pages::pipelines::{Change, Sampler, records_read};
use crate::pages::stream::{Arrivals, Arrived};

/// The interval of events that load the page again.
const RELOAD_PERIOD: Duration = Duration::from_secs(2);

/// The interval of samples, which is also the interval at which `weir up` writes its status.
const SAMPLE_PERIOD: Duration = Duration::from_millis(500);

/// The number of samples between two reads of the store's clock. Each read is a request to the
/// store.
const SAMPLES_PER_CLOCK: u32 = 2;

/// The number of samples without a change after which an event shows that the connection works.
const SAMPLES_PER_SIGN: u32 = 20;

/// The maximum number of event streams at a time. Each open tab has one stream.
pub(crate) const STREAMS_MAX: usize = 16;

/// The capacity of the queue of events for a slow browser. While the queue is full, sampling
/// pauses.
const QUEUE: usize = 4;

/// Starts a stream of events that make the browser reload the page. The stream ends when the
/// browser disconnects or the console ends.
pub(crate) fn reload(permit: OwnedSemaphorePermit, mut stopped: watch::Receiver<bool>) -> Body {
    let (events, body) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let _permit = permit;
        loop {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(RELOAD_PERIOD) => {}
            }
            if events.send(Bytes::from_static(b"event: reload\ndata:\n\n")).await.is_err() {
                return;
            }
        }
    });
    Body::Events(body)
}

/// Starts a stream of events with the figures of the page Pipelines. The stream ends when the
/// browser disconnects or the console ends.
pub(crate) fn figures(
    context: Arc<Context>,
    permit: OwnedSemaphorePermit,
    mut stopped: watch::Receiver<bool>,
) -> Body {
    let (events, body) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let _permit = permit;
        let mut sampler = Sampler::default();
        for round in 0_u32.. {
            let Some((event, back)) = sample(Arc::clone(&context), sampler, round).await else {
                return;
            };
            sampler = back;
            if let Some(event) = event
                && events.send(Bytes::from(event)).await.is_err()
            {
                return;
            }
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return,
                () = events.closed() => return,
                () = tokio::time::sleep(SAMPLE_PERIOD) => {}
            }
        }
    });
    Body::Events(body)
}

/// Takes a sample, and returns its event if something changed. Returns `None` if the sample
/// panicked.
async fn sample(
    context: Arc<Context>,
    mut sampler: Sampler,
    round: u32,
) -> Option<(Option<String>, Sampler)> {
    let clock = match round.is_multiple_of(SAMPLES_PER_CLOCK) {
        true => clock::text(&context).await,
        false => None,
    };
    let sampled = tokio::task::spawn_blocking(move || (sampler.sample(&context), sampler));
    let (change, sampler) = sampled.await.ok()?;
    let mut texts = match change {
        Some(Change::Shape) => return Some((Some("event: reload\ndata:\n\n".to_owned()), sampler)),
        Some(Change::Figures(texts)) => texts,
        None => Default::default(),
    };
    texts.extend(clock.map(|clock| ("clock".to_owned(), clock)));
    let is_sign = round.is_multiple_of(SAMPLES_PER_SIGN);
    let event = (!texts.is_empty() || is_sign).then(|| {
        // Compact JSON contains no raw line breaks, because strings escape them.
        let json = serde_json::to_string(&texts).unwrap_or_default();
        format!("event: figures\ndata: {json}\n\n")
    });
    Some((event, sampler))
}

/// Starts a stream of events about new records. The stream ends when the browser disconnects or the
/// console ends.
pub(crate) fn records(
    context: Arc<Context>,
    permit: OwnedSemaphorePermit,
    mut stopped: watch::Receiver<bool>,
) -> Body {
    let (events, body) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let _permit = permit;
        let mut arrivals = Arrivals::default();
        for round in 0_u32.. {
            let own = Arc::clone(&context);
            let read = tokio::task::spawn_blocking(move || records_read(&own)).await.ok().flatten();
            let event = match read.and_then(|read| arrivals.sample(read)) {
                Some(Arrived::Load) => Some("event: reload\ndata:\n\n".to_owned()),
                Some(Arrived::Many(new)) => Some(format!(
                    "event: figures\ndata: {{\"new-records\":\"{new} new records: reload\"}}\n\n"
                )),
                // A comment event keeps the connection alive.
                None => round.is_multiple_of(SAMPLES_PER_SIGN).then(|| ":\n\n".to_owned()),
            };
            if let Some(event) = event
                && events.send(Bytes::from(event)).await.is_err()
            {
                return;
            }
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return,
                () = events.closed() => return,
                () = tokio::time::sleep(SAMPLE_PERIOD) => {}
            }
        }
    });
    Body::Events(body)
}
