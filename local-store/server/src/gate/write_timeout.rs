//! A connection whose client has to take what it is sent: one that reads nothing for a while is let
//! go, with its place and the answer that waits for it.
//!
//! It notes each part that passed, and hands small answers to the system as one piece. How long
//! requests may take is decided elsewhere.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::progress::Progress;

/// Time that a client has to take any part of what it is sent. An answer may have several megabytes,
/// and stays in memory until then.
const TAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// A head and a body of this size together go to the system as one piece: it takes two for two only after
/// looking at both, which costs more than to copy them.
const ONE_PIECE_BYTES: usize = 2048;

/// A stream that fails when nothing could be written to it for so long.
pub(super) struct TimedStream<S> {
    stream: S,
    progress: Arc<Progress>,
    /// What was last written as one piece.
    piece: Vec<u8>,
    /// Runs while something waits to be written.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self { stream, progress, piece: Vec::new(), waiting: None }
    }

    /// Notes that the client took a part of an answer.
    fn note(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.progress.step();
        }
    }

    /// What a write came to; one that waits fails in the end.
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
