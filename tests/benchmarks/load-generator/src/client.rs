//! One keep-alive connection: sends a request and waits for its answer.
//!
//! It uses hyper's connection without a pool and without its own task. The caller's task drives the
//! connection, because a wake-up between two tasks would cost more than the request.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::str::FromStr;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The address of a server that speaks plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Host and port, as in the `Host` header.
    pub(crate) authority: String,
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let uri: Uri = url.parse().map_err(|_| "not a URL; write http://HOST:PORT")?;
        let authority = uri.authority().filter(|authority| authority.port().is_some());
        match (uri.scheme_str(), authority, uri.path()) {
            (Some("http"), Some(authority), "" | "/") => {
                Ok(Self { authority: authority.as_str().to_owned() })
            }
            _ => Err("only plain HTTP without a path is measured; write http://HOST:PORT"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "http://{}", self.authority)
    }
}

/// A response that was completely received.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// A connection for one request at a time.
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// The driver of the connection; `None` after the connection has ended.
    driver: Option<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>,
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// When nothing listens at the address.
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(&endpoint.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) =
            http1::Builder::new().writev(false).handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(driver) })
    }

    /// Returns true if the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_none() || self.sender.is_closed()
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// When the connection breaks. The server may have executed the request.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Answer> {
        let Self { sender, driver } = self;
        let mut answer = pin!(async {
            sender.ready().await?;
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer { status: head.status, body })
        });
        if let Some(open) = driver {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                _ = open => *driver = None,
            }
        }
        // The connection has ended, so the answer has already arrived, or never arrives.
        answer.await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn endpoints() {
        assert_eq!("http://[::1]:8/".parse(), Ok(Endpoint { authority: "[::1]:8".to_owned() }));
        for url in ["https://store:1", "127.0.0.1:8000", "http://127.0.0.1:8000/path", "http://a"] {
            assert!(url.parse::<Endpoint>().is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_ends_the_connection_is_received() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint { authority: listener.local_addr().unwrap().to_string() };
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = stream.read(&mut [0; 1024]).await.unwrap();
            assert!(read > 0);
            let answer = b"HTTP/1.1 400 No\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.unwrap();
        });
        let mut connection = Connection::open(&endpoint).await.unwrap();
        let answer = connection.exchange(Request::default()).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (400, &b"{}"[..]));
        assert!(connection.is_closed() || connection.exchange(Request::default()).await.is_err());
    }
}
