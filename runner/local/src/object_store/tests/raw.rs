//! Raw requests, which the SDK does not send: contents with trailers, and unusual XML.

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::{client::legacy, rt::TokioExecutor};

use super::*;

#[tokio::test]
async fn contents_with_trailers_are_decoded_and_checked() {
    let fixture = Fixture::start().await;
    let http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let put = |coded: &'static [u8], length: u32, declared: Option<u32>| {
        let declared = declared.unwrap_or(length);
        let request = Request::put(format!("{}/{BUCKET}/k", fixture.endpoint.url()))
            .header("authorization", "AWS4-HMAC-SHA256 Credential=any, Signature=any")
            .header("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
            .header("content-encoding", "aws-chunked")
            .header("x-amz-trailer", "x-amz-checksum-crc32")
            .header("x-amz-decoded-content-length", declared)
            .body(Full::new(Bytes::from_static(coded)))
            .unwrap();
        let sent = http.request(request);
        async move {
            let (parts, body) = sent.await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            (parts.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
        }
    };
    let cases: [(&[u8], Option<u32>, u16, &str); 4] = [
        (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", None, 400, "BadDigest"),
        (b"5\r\nhello\r\n0\r\n\r\n", Some(6), 400, "IncompleteBody"),
        (b"5\r\nhel", None, 400, "IncompleteBody"),
        (b"zz\r\nhello\r\n0\r\n\r\n", None, 400, "InvalidArgument"),
    ];
    for (coded, declared, status, code) in cases {
        let (answered, body) = put(coded, 5, declared).await;
        assert_eq!(answered, status, "{body}");
        assert!(body.contains(code), "{body}");
        assert_eq!(fixture.get("k").await.unwrap_err(), "NoSuchKey", "nothing was written");
    }
    let (status, body) =
        put(b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", 5, None).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(fixture.get("k").await.unwrap(), "hello");
    let head = fixture.client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(head.content_encoding(), None);
    assert!(files(&fixture.folder.path().join("s3/.tmp")).is_empty());
}

/// Goal: the response to an unusual or invalid request is 200 or a refusal, never an internal
/// error. Method: sends each body with each kind of request that has an XML body or begins an
/// upload.
#[tokio::test]
async fn unusual_bodies_are_no_internal_errors() {
    let fixture = Fixture::start().await;
    fixture.put("kept", "content").await.unwrap();
    let upload = fixture.client.create_multipart_upload().bucket(BUCKET).key("parts");
    let upload = upload.send().await.unwrap().upload_id.unwrap();
    let http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let doctype =
        "<?xml version=\"1.0\"?><!DOCTYPE Delete [<!ENTITY e SYSTEM \"file:///etc/hosts\">]>";
    let trailer = "x-amz-checksum-crc32:AAAAAA==";
    let bodies = [
        String::new(),
        doctype.to_owned(),
        format!("{doctype}<Delete><Object><Key>&e;</Key></Object></Delete>"),
        format!(
            "{doctype}<CompleteMultipartUpload><Part><ETag>&e;</ETag></Part></CompleteMultipartUpload>"
        ),
        "<!DOCTYPE".to_owned(),
        format!("0\r\n{trailer}\r\n\r\n"),
        format!("5\r\nhello\r\n0\r\n{trailer}\r\n\r\n"),
        "5\r\nhel".to_owned(),
    ];
    let completed = format!("POST /{BUCKET}/parts?uploadId={upload}");
    for request in
        [&*format!("POST /{BUCKET}/new?uploads"), &format!("POST /{BUCKET}?delete"), &completed]
    {
        let (method, path) = request.split_once(' ').unwrap();
        for (body, is_streaming) in bodies.iter().flat_map(|body| [(body, false), (body, true)]) {
            let mut sent = Request::builder()
                .method(method)
                .uri(format!("{}{path}", fixture.endpoint.url()))
                .header("authorization", "AWS4-HMAC-SHA256 Credential=any, Signature=any");
            if is_streaming {
                sent = sent
                    .header("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
                    .header("content-encoding", "aws-chunked")
                    .header("x-amz-trailer", "x-amz-checksum-crc32")
                    .header("x-amz-decoded-content-length", body.len());
            }
            let sent = sent.body(Full::new(Bytes::from(body.clone()))).unwrap();
            let (parts, answer) = http.request(sent).await.unwrap().into_parts();
            let answer = answer.collect().await.unwrap().to_bytes();
            let status = parts.status.as_u16();
            let answer = String::from_utf8_lossy(&answer);
            let is_expected = status == 200 || (400..500).contains(&status);
            assert!(
                is_expected,
                "{request}, streaming: {is_streaming}, {body:?}: {status} {answer}"
            );
            assert!(!answer.contains("localhost"), "no file of the machine is read: {answer}");
        }
    }
    assert_eq!(fixture.keys().await, ["kept"], "nothing was written or deleted");
}
