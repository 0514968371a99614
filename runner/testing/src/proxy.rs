//! A proxy of an endpoint, for tests of failed requests and lost responses. The proxy responds to
//! some requests itself.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// The proxy's own response; `None` to forward the request.
pub type Answer = Option<Response<Full<Bytes>>>;
/// A function that creates the proxy's own response.
pub type Fails = fn() -> Answer;

/// Returns a response with an error of DynamoDB.
pub fn refusal(status: u16, code: &str) -> Answer {
    let body =
        json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "no" });
    answered(status, &body)
}

/// Returns the response for a cancelled transaction, with the reason codes of its items.
pub fn cancelled(codes: &[&str]) -> Answer {
    let reasons: Vec<_> = codes.iter().map(|code| json!({ "Code": code })).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": "no", "CancellationReasons": reasons,
    });
    answered(400, &body)
}

/// The error with which the proxy closes the connection instead of responding.
#[derive(Clone)]
struct HangsUp;

/// Returns the response that closes the connection.
pub fn hang_up() -> Answer {
    let mut answer = Response::new(Full::default());
    answer.extensions_mut().insert(HangsUp);
    Some(answer)
}

/// Returns a response with a JSON body.
pub fn answered(status: u16, body: &serde_json::Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string()));
    let status = StatusCode::from_u16(status).unwrap();
    Some(Response::builder().status(status).body(body).unwrap())
}

/// Starts a proxy of a store and returns its address. `script` receives the operation and the body
/// of each request. The proxy ends with the test's runtime.
pub async fn before(
    store: &str,
    script: impl Fn(&str, &str) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
) -> String {
    serve(store, script, |_, body| body).await
}

/// Starts a proxy that behaves like a third-party store, and returns its address. `time` converts
/// the times of stream records, in seconds since 1970. The proxy ends with the test's runtime.
pub async fn with_record_times(store: &str, time: fn(i64) -> Option<i64>) -> String {
    // A request without an operation is for a path that only this project's store has.
    let script = |operation: &str, _: &str| {
        let answer = operation.is_empty().then(|| answered(404, &json!({}))).flatten();
        async move { answer }.boxed()
    };
    serve(store, script, move |operation, body| match operation {
        "GetRecords" => with_times(&body, time),
        _ => body,
    })
    .await
}

/// Returns a page of records with converted times.
fn with_times(page: &Bytes, time: fn(i64) -> Option<i64>) -> Bytes {
    let mut page: serde_json::Value = serde_json::from_slice(page).unwrap();
    for record in page["Records"].as_array_mut().into_iter().flatten() {
        let record = record["dynamodb"].as_object_mut().unwrap();
        let made = record.remove("ApproximateCreationDateTime").unwrap();
        if let Some(shown) = time(made.as_i64().unwrap()) {
            record.insert("ApproximateCreationDateTime".to_owned(), json!(shown));
        }
    }
    Bytes::from(page.to_string())
}

/// Starts a proxy. `script` receives the operation and the body of each request. `rewrite` receives
/// the operation and the body of each response.
async fn serve(
    store: &str,
    script: impl Fn(&str, &str) -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    rewrite: impl Fn(&str, Bytes) -> Bytes + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (store, script, rewrite) = (store.to_owned(), Arc::new(script), Arc::new(rewrite));
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (store, script, client) = (store.clone(), Arc::clone(&script), client.clone());
            let rewrite = Arc::clone(&rewrite);
            let service = service_fn(move |request: Request<Incoming>| {
                let (store, script, client) = (store.clone(), Arc::clone(&script), client.clone());
                let rewrite = Arc::clone(&rewrite);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let target = head.headers.get("x-amz-target").map(|t| t.to_str().unwrap());
                    let operation = target.and_then(|target| target.split('.').nth(1));
                    let operation = operation.unwrap_or_default().to_owned();
                    let text = String::from_utf8_lossy(&body).into_owned();
                    if let Some(answer) = script(&operation, &text).await {
                        let hangs_up = answer.extensions().get::<HangsUp>().is_some();
                        let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
                        return if hangs_up { Err(closed()) } else { Ok(answer) };
                    }
                    let (mut head, body) =
                        forwarded(&client, &store, head, body).await.into_parts();
                    // These headers describe the original body.
                    for name in ["content-length", "x-amz-crc32"] {
                        head.headers.remove(name);
                    }
                    let body = body.collect().await.unwrap().to_bytes();
                    Ok(Response::from_parts(head, Full::new(rewrite(&operation, body))))
                }
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
        }
    });
    url
}

/// Starts an endpoint that closes each connection without a response, and returns its address. It ends
/// with the test's runtime.
pub async fn that_closes() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut begin = [0; 16];
            let _ = socket.read(&mut begin).await;
        }
    });
    url
}

async fn forwarded(
    client: &Client<HttpConnector, Full<Bytes>>,
    store: &str,
    mut head: http::request::Parts,
    body: Bytes,
) -> Response<Full<Bytes>> {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = format!("{store}{path}").parse().unwrap();
    let answer = client.request(Request::from_parts(head, Full::new(body))).await.unwrap();
    let (head, body) = answer.into_parts();
    Response::from_parts(head, Full::new(body.collect().await.unwrap().to_bytes()))
}
