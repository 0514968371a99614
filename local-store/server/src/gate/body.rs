//! Wrappers of request and response bodies, which update the connection's progress when a body is
//! complete.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::progress::Progress;

/// The body of a request. It records the arrival of its last frame.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    progress: Arc<Progress>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, progress: Arc<Progress>) -> Self {
        progress.set_arrived(body.is_end_stream());
        Self { body, progress }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None))
            || matches!(frame, Poll::Ready(Some(Ok(_)))) && self.body.is_end_stream()
        {
            self.progress.set_arrived(true);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response. The request counts as in progress until this value is dropped.
#[derive(Debug)]
pub(super) struct ResponseBody<B> {
    body: B,
    progress: Arc<Progress>,
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: B, progress: Arc<Progress>) -> Self {
        Self { body, progress }
    }
}

impl<B> Drop for ResponseBody<B> {
    fn drop(&mut self) {
        self.progress.set_under_way(false);
    }
}

impl<B: Body + Unpin> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
