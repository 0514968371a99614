//! The write time-out: closes the connection of a client that stops reading a response. This frees
//! the connection's permit and the memory of the response.
//!
//! The module also records each write in the connection's progress, and writes small responses in
//! one system call. Time-outs of requests are in `connection`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::progress::Progress;

/// The time after which a client that does not read a response is disconnected. The response, up to
/// several megabytes, stays in memory until then.
const TAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size in bytes of a head and a body that are copied into one buffer and written
/// together. Up to this size, the copy is cheaper than a system call with two buffers.
const ONE_PIECE_BYTES: usize = 2048;

/// A stream whose writes time out after [`TAKE_TIMEOUT`].
pub(super) struct TimedStream<S> {
    stream: S,
    progress: Arc<Progress>,
    /// The buffer in which the head and the body of a small response are joined.
    piece: Vec<u8>,
    /// The time-out of the pending write.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self { stream, progress, piece: Vec::new(), waiting: None }
    }

    /// Records a successful write as progress, because the client has then read a part of the response.
    fn note(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.progress.step();
        }
    }

    /// Applies the time-out to the result of a write: a write that stays pending for too long
    /// fails.
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.waiting.take().is_some() {
                self.progress.set_writing(false);
            }
            return written;
        }
        if self.waiting.is_none() {
            self.progress.set_writing(true);
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(TAKE_TIMEOUT)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.progress.note_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(&written);
        self.limited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, piece, .. } = &mut *self;
        let written = if slices.iter().map(|slice| slice.len()).sum::<usize>() > ONE_PIECE_BYTES {
            Pin::new(stream).poll_write_vectored(context, slices)
        } else {
            piece.clear();
            slices.iter().for_each(|slice| piece.extend_from_slice(slice));
            Pin::new(stream).poll_write(context, piece)
        };
        self.note(&written);
        self.limited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.limited(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limited(context, ended)
    }
}
