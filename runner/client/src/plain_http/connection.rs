//! One keep-alive connection: a request out, its answer in, nothing in between.
//!
//! Plain HTTP/1.1 on a socket: no pool, no queue, no retry. A client library would use more CPU than
//! the servers that are to be measured.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::response::{self, ANSWER_BYTES_MAX};

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host and port, as in the `Host` header.
    pub authority: String,
    host: String,
    port: u16,
}

impl Endpoint {
    /// Reads an address like `http://127.0.0.1:8000`.
    ///
    /// # Errors
    /// When it is none, or needs TLS.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("--endpoint `{url}` {why}; write http://HOST:PORT");
        let uri: http::Uri = url.parse().map_err(|_| wrong("is no address"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("is not plain HTTP, and no TLS is spoken here"));
        }
        if !matches!(uri.path(), "" | "/") {
            return Err(wrong("has a path"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(80),
        })
    }
}

/// A connection and what was read from it last.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A whole answer; its body lies in the connection's buffer.
pub struct Answered<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body; of a chunked answer with the lengths of its chunks in it.
    pub body: &'a [u8],
    /// Whether the connection is at its end.
    pub closes: bool,
}

/// The first size of the buffer: more than most answers.
const BUFFER_BYTES: usize = 32 * 1024;

impl Connection {
    /// Connects.
    pub async fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Whether the other side has closed it, or said what nobody asked: a request on it would be lost.
    pub fn is_over(&self) -> bool {
        let waiting = self.stream.try_read(&mut [0]);
        !matches!(waiting, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the connection breaks or what comes is no answer; whether the request was carried out
    /// is not known then, and the connection is of no further use.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Answered<'_>> {
        let broken = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let answer = loop {
            if filled == self.buffer.len() {
                if filled >= ANSWER_BYTES_MAX {
                    return Err(broken("an answer does not end".to_owned()));
                }
                self.buffer.resize(filled * 2, 0);
            }
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            let read = self.stream.read(room).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            let so_far = self.buffer.get(..filled).unwrap_or_default();
            if let Some(answer) = response::parse(so_far).map_err(broken)? {
                break answer;
            }
        };
        if answer.end != filled {
            return Err(broken("more came than one answer".to_owned()));
        }
        let body = self.buffer.get(answer.body_start..answer.end).unwrap_or_default();
        Ok(Answered { status: answer.status, body, closes: answer.closes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let endpoint = Endpoint::parse("http://127.0.0.1:8000/").unwrap();
        assert_eq!(endpoint.authority, "127.0.0.1:8000");
        assert_eq!(Endpoint::parse("http://[::1]:8").unwrap().host, "::1");
        assert_eq!(Endpoint::parse("http://store").unwrap().port, 80);
        for (url, expected) in [
            ("https://dynamodb.us-east-1.amazonaws.com", "no TLS"),
            ("127.0.0.1:8000", "write http://"),
            ("http://127.0.0.1:8000/path", "has a path"),
        ] {
            assert!(Endpoint::parse(url).unwrap_err().contains(expected), "{url}");
        }
    }
}
