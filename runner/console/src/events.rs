//! Server-sent events: they tell an open page that its data changed.
//!
//! Events are samples, twice a second, of counters that `weir up` writes anyway. Their number does not depend on
//! the number of records.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::body::Body;

/// The interval of events that load the page again.
const RELOAD_PERIOD: Duration = Duration::from_secs(2);

/// The maximum number of event streams at a time. Each open tab has one.
pub(crate) const STREAMS_MAX: usize = 16;

/// The number of events that wait for a slow browser. When it is full, the next samples wait.
const QUEUE: usize = 4;

/// Starts a stream of events that load the page again. It ends when the browser or the console ends.
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
