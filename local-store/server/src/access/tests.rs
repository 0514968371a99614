//! Tests of signature verification.
//!
//! Goal: requests that another implementation signed are accepted, and any later change is detected.
//! Method: the signer of the AWS SDK signs requests, in headers and in the query string. Then the
//! tests change one part at a time.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign,
};
use aws_sigv4::sign::v4;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Uri};
use jiff::Timestamp;

use super::{AccessKeys, verify};

const BODY: &[u8] = br#"{"TableName":"votes"}"#;
const SIGNED_AT: i64 = 1_795_000_000;

fn keys() -> AccessKeys {
    AccessKeys::parse("[a]\naws_access_key_id=AKIA1\naws_secret_access_key=secret/1+\n").unwrap()
}

/// Returns a signed request.
fn signed(key: &str, secret: &str, presigned_for: Option<u64>, token: Option<&str>) -> Parts {
    let headers = [
        ("host", "127.0.0.1:8000"),
        ("content-type", "application/x-amz-json-1.0"),
        ("x-amz-target", "DynamoDB_20120810.DescribeTable"),
    ];
    let mut request = Request::builder().method("POST").uri("http://127.0.0.1:8000/");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut request = request.body(()).unwrap();
    let credentials = Credentials::new(key, secret, token.map(str::to_owned), None, "test");
    let identity = credentials.into();
    let mut settings = SigningSettings::default();
    if let Some(seconds) = presigned_for {
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(seconds));
    }
    let time = UNIX_EPOCH + Duration::from_secs(u64::try_from(SIGNED_AT).unwrap());
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region("eu-central-1")
        .name("dynamodb")
        .time(time)
        .settings(settings)
        .build()
        .unwrap();
    let signable = SignableRequest::new(
        "POST",
        "http://127.0.0.1:8000/",
        headers.into_iter(),
        SignableBody::Bytes(BODY),
    )
    .unwrap();
    let (instructions, _) = sign(signable, &parameters.into()).unwrap().into_parts();
    instructions.apply_to_request_http1x(&mut request);
    request.into_parts().0
}

fn header_form() -> Parts {
    signed("AKIA1", "secret/1+", None, None)
}

/// Returns the type and the message of the refusal; `None` if the request is accepted.
fn refusal(head: &Parts, body: &[u8], age: i64) -> Option<String> {
    let now = Timestamp::from_second(SIGNED_AT + age).unwrap();
    let error = verify(&keys(), head, body, now, None).err()?;
    let response = error.to_response();
    assert_eq!(response.status, 400);
    let text = response.body.replace("com.amazon.coral.service#", "");
    assert!(!text.contains("secret/1"), "{text}");
    Some(text)
}

fn assert_refused(head: &Parts, body: &[u8], age: i64, part: &str) {
    let refusal = refusal(head, body, age);
    assert!(refusal.as_ref().is_some_and(|text| text.contains(part)), "{part}: {refusal:?}");
}

#[test]
fn requests_signed_by_the_sdk_are_accepted() {
    assert_eq!(refusal(&header_form(), BODY, 0), None);
    assert_eq!(refusal(&signed("AKIA1", "secret/1+", Some(3600), None), BODY, 3600), None);
    // Headers that do not change the effect of a request need no signature.
    let mut head = header_form();
    head.headers.insert("user-agent", HeaderValue::from_static("changed"));
    head.headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    assert_eq!(refusal(&head, BODY, 0), None);
}

#[test]
fn the_parts_of_a_signature_stand_behind_commas_or_blanks() {
    let text = header_form().headers["authorization"].to_str().unwrap().to_owned();
    for written in [text.replace(", ", ","), text.replace(", ", " "), text.replace(", ", " ,\t")] {
        let mut head = header_form();
        head.headers.insert("authorization", HeaderValue::from_str(&written).unwrap());
        assert_eq!(refusal(&head, BODY, 0), None, "{written}");
    }
}

/// Goal: the time is checked before the scope, the headers and the key, as in DynamoDB.
#[test]
fn an_old_signature_is_told_to_be_old_whatever_else_is_wrong() {
    let mut head = header_form();
    let authorization = "AWS4-HMAC-SHA256 Credential=nobody/2/3/4/aws4_request SignedHeaders=x-amz-date;host Signature=123";
    head.headers.insert("authorization", HeaderValue::from_static(authorization));
    assert_refused(
        &head,
        BODY,
        3600,
        "InvalidSignatureException\",\"message\":\"Signature expired: ",
    );
    assert_refused(&head, BODY, -3600, "Signature not yet current: ");
}

#[test]
fn clocks_may_differ_by_a_quarter_of_an_hour() {
    for (age, part) in [
        (15 * 60, None),
        (-15 * 60, None),
        (15 * 60 + 1, Some("Signature expired: 20261118T")),
        (-15 * 60 - 1, Some("Signature not yet current: 20261118T")),
    ] {
        match part {
            None => assert_eq!(refusal(&header_form(), BODY, age), None, "{age}"),
            Some(part) => assert_refused(&header_form(), BODY, age, part),
        }
    }
    // The signer may use this computer's clock or the time in the `Date` header of responses.
    let at = |age: i64| Timestamp::from_second(SIGNED_AT + age).unwrap();
    for (now, shown, is_taken) in [(0, 7200, true), (-7200, 0, true), (-7200, 7200, false)] {
        let verified = verify(&keys(), &header_form(), BODY, at(now), Some(at(shown)));
        assert_eq!(verified.is_ok(), is_taken, "{now} {shown}");
    }
    let presigned = signed("AKIA1", "secret/1+", Some(60), None);
    assert_eq!(refusal(&presigned, BODY, 60), None);
    assert_refused(&presigned, BODY, 61, "Signature expired");
}

#[test]
fn other_keys_are_refused() {
    let unknown = "UnrecognizedClientException\",\"message\":\"The security token included in the request is invalid.\"";
    assert_refused(&signed("AKIA2", "secret/1+", None, None), BODY, 0, unknown);
    assert_refused(&signed("AKIA1", "secret/1+", None, Some("token")), BODY, 0, unknown);
    let mismatch = "InvalidSignatureException\",\"message\":\"The request signature we calculated does not match";
    assert_refused(&signed("AKIA1", "secret/2", None, None), BODY, 0, mismatch);
    assert_refused(&signed("AKIA1", "secret/2", Some(60), None), BODY, 0, mismatch);
}

#[test]
fn every_change_of_a_signed_part_is_found() {
    let mismatch = "InvalidSignatureException";
    for position in 0..BODY.len() {
        let mut body = BODY.to_vec();
        body[position] ^= 1;
        assert_refused(&header_form(), &body, 0, mismatch);
    }
    for (name, value) in [
        ("host", "127.0.0.1:8001"),
        ("content-type", "application/json"),
        ("x-amz-target", "DynamoDB_20120810.DeleteTable"),
        ("x-amz-date", "20261118T110641Z"),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
    ] {
        let mut head = header_form();
        head.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        assert!(refusal(&head, BODY, 0).is_some(), "{name}");
    }
    let mut twice = header_form();
    twice.headers.append("x-amz-target", HeaderValue::from_static("DynamoDB_20120810.Scan"));
    assert_refused(&twice, BODY, 0, mismatch);
    let mut head = header_form();
    head.method = http::Method::PUT;
    assert_refused(&head, BODY, 0, mismatch);
    for uri in ["http://127.0.0.1:8000/other", "http://127.0.0.1:8000/?a=b"] {
        let mut head = header_form();
        head.uri = Uri::from_static(uri);
        assert_refused(&head, BODY, 0, mismatch);
    }
    // A change of any digit of the signature is detected.
    let text = header_form().headers["authorization"].to_str().unwrap().to_owned();
    let start = text.find("Signature=").unwrap() + "Signature=".len();
    for position in start..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[position] = if changed[position] == b'0' { b'1' } else { b'0' };
        let mut head = header_form();
        head.headers.insert("authorization", HeaderValue::from_bytes(&changed).unwrap());
        assert_refused(&head, BODY, 0, mismatch);
    }
}

#[test]
fn missing_and_malformed_parts_are_reported() {
    let text = header_form().headers["authorization"].to_str().unwrap().to_owned();
    let with = |authorization: &str| {
        let mut head = header_form();
        head.headers.insert("authorization", HeaderValue::from_str(authorization).unwrap());
        head
    };
    let mut none = header_form();
    none.headers.remove("authorization");
    let missing = "MissingAuthenticationTokenException\",\"message\":\"Request is missing Authentication Token\"";
    assert_refused(&none, BODY, 0, missing);
    assert_refused(&with("Basic dXNlcjpwYXNz"), BODY, 0, missing);
    for (from, to, part) in [
        (
            "Credential=",
            "Credentials=",
            "IncompleteSignatureException\",\"message\":\"Authorization header requires 'Credential' parameter. Authorization=",
        ),
        ("Signature=", "Sig=", "requires 'Signature' parameter. "),
        ("SignedHeaders=", "Headers=", "requires 'SignedHeaders' parameter. "),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1", "IncompleteSignatureException"),
        ("/dynamodb/", "/", "exactly 5 slash-delimited elements"),
        (
            "/dynamodb/",
            "/s3/",
            "InvalidSignatureException\",\"message\":\"Credential should be scoped to correct service: 'dynamodb'. ",
        ),
        ("/eu-central-1/", "//", "valid region"),
        ("aws4_request", "aws5_request", "valid terminator: 'aws4_request', not 'aws5_request'. "),
        ("/20261118/", "/20261117/", "'20261117' != '20261118'"),
        ("host;", "", "'Host' must be a 'SignedHeader' in the AWS Authorization."),
        (";x-amz-target", "", "'X-Amz-Target' must be a 'SignedHeader'"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        assert_refused(&with(&text.replace(from, to)), BODY, 0, part);
    }
    let mut head = header_form();
    head.headers.remove("x-amz-date");
    assert_refused(&head, BODY, 0, "either a 'X-Amz-Date' or a 'Date' header. ");
    let mut both = header_form();
    both.uri = Uri::from_static("http://x/?X-Amz-Algorithm=AWS4-HMAC-SHA256");
    assert_refused(&both, BODY, 0, "Found both 'X-Amz-Algorithm'");
    let mut query = none;
    query.uri = Uri::from_static("http://x/?X-Amz-Algorithm=AWS4-HMAC-SHA256");
    assert_refused(&query, BODY, 0, "must include 'X-Amz-Credential'. AWS query-string");
}
