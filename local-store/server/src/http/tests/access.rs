//! Tests of access over HTTP: signatures, compressed bodies, origins of pages, forged iterators.
//!
//! Goal: unauthorised clients get no data, and a compressed body has the same effect as an uncompressed
//! body. The module `access` tests the verification of signatures in detail.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::{Answer, Server, TABLE};
use crate::access::AccessKeys;
use crate::gate::AllowList;
use crate::http::Access;

const LIST: &str = "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.ListTables";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

impl Server {
    async fn send_packed(&self, operation: &str, body: &[u8]) -> Answer {
        let head = format!(
            "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\nContent-Encoding: gzip"
        );
        self.send(&head, body).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_requests_are_decompressed_within_bounds() {
    let server = Server::start().await;
    assert_eq!(server.send_packed("CreateTable", &gzip(TABLE.as_bytes())).await.status, 200);
    let described = server.send_packed("DescribeTable", &gzip(br#"{"TableName":"votes"}"#)).await;
    assert_eq!(described.json()["Table"]["TableName"], "votes");
    // A decompression bomb: 64 MB of spaces, compressed to some KB.
    let bomb = gzip(&vec![b' '; 64 * 1024 * 1024]);
    assert!(bomb.len() < 100_000);
    assert_eq!(server.send_packed("ListTables", &bomb).await.status, 413);
    for body in [&b"{}"[..], &gzip(b"{}")[..10]] {
        let answer = server.send_packed("ListTables", body).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("SerializationException"), "{answer:?}");
    }
    let deflated = server.send(&format!("{LIST}\r\nContent-Encoding: deflate"), zlib(b"{}")).await;
    assert_eq!(deflated.json()["TableNames"][0], "votes");
    let other = server.send(&format!("{LIST}\r\nContent-Encoding: br"), "{}").await;
    assert!(other.text().contains("Content-Encoding is not supported"), "{other:?}");
    assert_eq!(server.send(LIST, "{}").await.json()["TableNames"][0], "votes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_and_headers_have_at_most_16_kb() {
    let server = Server::start().await;
    for (bytes, status) in [(15 * 1024, 200), (17 * 1024, 400)] {
        // The limit applies to the total size of all header lines.
        let lines =
            (0..bytes / 1024).map(|line| format!("\r\nX-Line-{line}: {}", "x".repeat(1000)));
        let answer = server.send(&format!("{LIST}{}", lines.collect::<String>()), "{}").await;
        assert_eq!(answer.status, status, "{bytes}: {}", answer.text());
        let path = LIST.replacen("POST /", &format!("POST /{}", "x".repeat(bytes)), 1);
        let answer = server.send(&path, "{}").await;
        assert_eq!(answer.status, status, "path of {bytes}: {}", answer.text());
    }
    assert_eq!(server.send(LIST, "{}").await.status, 200, "the store goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_responses_are_compressed_if_the_client_accepts_it() {
    let server = Server::start().await;
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200);
    let item = format!(
        r#"{{"TableName":"votes","Item":{{"pk":{{"S":"a"}},"v":{{"S":"{}"}}}}}}"#,
        "x".repeat(5000)
    );
    assert_eq!(server.call("PutItem", &item).await.status, 200);
    let get = "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.Scan\r\nAccept-Encoding: gzip";
    let packed = server.send(get, r#"{"TableName":"votes"}"#).await;
    let plain = server.call("Scan", r#"{"TableName":"votes"}"#).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.body.len() < 1000 && plain.body.len() > 5000);
    // The checksum covers the compressed bytes.
    assert_eq!(packed.header("x-amz-crc32"), crc32fast::hash(&packed.body).to_string());
    assert_eq!(plain.header("x-amz-crc32"), crc32fast::hash(&plain.body).to_string());
    let mut unpacked = Vec::new();
    GzDecoder::new(&*packed.body).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_pages_of_allowed_origins_may_use_the_store() {
    let allowed = AllowList::new(&[], &["http://localhost:3000".to_owned()]).unwrap();
    let server = Server::start_with(Access { allowed, ..Access::default() }).await;
    let preflight = "OPTIONS / HTTP/1.1\r\nAccess-Control-Request-Method: POST\r\nOrigin: ";
    let permitted = server.send(&format!("{preflight}http://localhost:3000"), "").await;
    assert_eq!(permitted.status, 200);
    assert_eq!(permitted.header("access-control-allow-origin"), "http://localhost:3000");
    assert!(permitted.header("access-control-allow-headers").contains("x-amz-target"));
    let answer = server.send(&format!("{LIST}\r\nOrigin: http://localhost:3000"), "{}").await;
    assert_eq!(answer.header("access-control-allow-origin"), "http://localhost:3000");
    for origin in ["http://localhost:3001", "null", "http://evil.example"] {
        let refused = server.send(&format!("{preflight}{origin}"), "").await;
        assert_eq!(refused.status, 403, "{origin}");
        let answer = server.send(&format!("{LIST}\r\nOrigin: {origin}"), "{}").await;
        assert_eq!(answer.status, 403, "{origin}");
        assert!(answer.text().contains("--allow-origin"), "{answer:?}");
        assert!(answer.header("access-control-allow-origin").is_empty(), "{origin}");
    }
    // The admin endpoint refuses web pages, even if their origin is allowed.
    let clock = "GET /_weir/clock HTTP/1.1\r\nOrigin: http://localhost:3000";
    assert_eq!(server.send(clock, "").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_keys_make_signatures_mandatory() {
    let text = "[a]\naws_access_key_id=AKIA1\naws_secret_access_key=secret\n";
    let keys = Some(AccessKeys::parse(text).unwrap());
    let server = Server::start_with(Access { keys, ..Access::default() }).await;
    let forged = "Authorization: AWS4-HMAC-SHA256 Credential=AKIA1/20261118/us-east-1/dynamodb/aws4_request, SignedHeaders=host;x-amz-date;x-amz-target, Signature=00";
    for (head, error) in [
        (LIST.to_owned(), "MissingAuthenticationTokenException"),
        (format!("{LIST}\r\n{forged}"), "IncompleteSignatureException"),
        (
            format!("{LIST}\r\nX-Amz-Date: 20261118T110640Z\r\n{forged}"),
            "InvalidSignatureException",
        ),
        ("GET /_weir/clock HTTP/1.1".to_owned(), "MissingAuthenticationTokenException"),
        ("POST /_weir/ttl/sweep HTTP/1.1".to_owned(), "MissingAuthenticationTokenException"),
    ] {
        let answer = server.send(&head, "{}").await;
        assert_eq!(answer.status, 400, "{head}");
        assert!(answer.text().contains(error), "{head}: {answer:?}");
    }
    // The health check needs no signature.
    assert_eq!(server.send("GET / HTTP/1.1", "").await.status, 200);
}
