//! Verification of signatures: computes the signature of a request with the secret of its access
//! key, and compares it with the signature in the request.
//!
//! The comparison takes constant time. The checks and error messages are those of DynamoDB. Source:
//! AWS, "Troubleshoot Signature Version 4 signing for AWS API requests".

use hmac::digest::FixedOutput;
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use sha2::Sha256;

use super::AccessKeys;
use super::canonical::{sha256_text, string_to_sign};
use super::claim::{self, Claim, date_text, header};
use crate::api::error::ApiError;

/// The maximum difference between the signer's clock and the clock of this machine.
const SKEW: SignedDuration = SignedDuration::from_mins(15);
/// The maximum number of seconds for which a request can be presigned: seven days.
const EXPIRES_MAX: i64 = 7 * 24 * 60 * 60;
/// The service in the scope of credentials. Requests on streams use the same name.
const SERVICE: &str = "dynamodb";
const TERMINATOR: &str = "aws4_request";
/// Headers that must be signed if present, because they determine the effect of a request.
/// `Content-Encoding` need not be signed, because the signature covers the body as it is sent.
const MUST_BE_SIGNED: [(&str, &str); 3] = [
    ("x-amz-target", "X-Amz-Target"),
    ("x-amz-date", "X-Amz-Date"),
    ("x-amz-content-sha256", "X-Amz-Content-Sha256"),
];
const MISMATCH: &str = "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.";

type HmacSha256 = Hmac<Sha256>;

/// Verifies the signature of a request. `body` is the body as it was sent, before decompression.
///
/// The time of the signature must be close to `now` or `shown`. `now` is the wall clock; `shown` is
/// the time in the `Date` header of responses, with which some SDKs correct their clock.
///
/// # Errors
/// `MissingAuthenticationTokenException`, `IncompleteSignatureException`, `UnrecognizedClientException` or
/// `InvalidSignatureException`.
pub(crate) fn verify(
    keys: &AccessKeys,
    head: &Parts,
    body: &[u8],
    now: Timestamp,
    shown: Option<Timestamp>,
) -> Result<(), ApiError> {
    let claim = claim::read(head)?;
    let is_as_shown = || shown.is_some_and(|shown| check_time(&claim, shown).is_ok());
    check_time(&claim, now).or_else(|late| if is_as_shown() { Ok(()) } else { Err(late) })?;
    check_signed_headers(head, &claim)?;
    check_scope(&claim)?;
    let secret = keys.secret(&claim.access_key).filter(|_| !claim.has_session_token);
    let secret = secret.ok_or_else(ApiError::unrecognized_client)?;
    let payload_hash = sha256_text(body);
    // The signature must cover the body. Otherwise an attacker could replace the body.
    let stated = header(head, "x-amz-content-sha256");
    if stated.is_some_and(|stated| stated != payload_hash) {
        return Err(ApiError::invalid_signature(MISMATCH));
    }
    let text = string_to_sign(head, &claim, &payload_hash);
    let given = decode_hexadecimal(&claim.signature);
    let signature = signing_key(secret, &claim).chain_update(text.as_bytes());
    match given {
        Some(given) if signature.verify_slice(&given).is_ok() => Ok(()),
        _ => Err(ApiError::invalid_signature(MISMATCH)),
    }
}

/// Derives the signing key from the secret, the date, the Region and the service.
fn signing_key(secret: &str, claim: &Claim) -> HmacSha256 {
    let scope = &claim.scope;
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in [&scope.date, &scope.region, &scope.service, &scope.terminator] {
        key = keyed(&key).chain_update(part.as_bytes()).finalize_fixed().to_vec();
    }
    keyed(&key)
}

fn keyed(key: &[u8]) -> HmacSha256 {
    // Never fails: HMAC accepts keys of any length, and the length is the only possible error.
    HmacSha256::new_from_slice(key).unwrap_or_else(|_| HmacSha256::new(&Default::default()))
}

fn decode_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let bytes = pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

fn check_signed_headers(head: &Parts, claim: &Claim) -> Result<(), ApiError> {
    let is_signed = |name: &str| claim.signed_headers.iter().any(|signed| signed == name);
    let unsigned = |shown: &str| {
        Err(ApiError::invalid_signature(&format!(
            "'{shown}' must be a 'SignedHeader' in the AWS Authorization."
        )))
    };
    if !is_signed("host") {
        return unsigned("Host");
    }
    for (name, shown) in MUST_BE_SIGNED {
        if head.headers.contains_key(name) && !is_signed(name) {
            return unsigned(shown);
        }
    }
    Ok(())
}

fn check_scope(claim: &Claim) -> Result<(), ApiError> {
    let scope = &claim.scope;
    let date = date_text(claim.date);
    let mut wrong = String::new();
    if scope.region.is_empty() {
        wrong.push_str("Credential should be scoped to a valid region, not ''. ");
    }
    if scope.service != SERVICE {
        wrong.push_str(&format!("Credential should be scoped to correct service: '{SERVICE}'. "));
    }
    if scope.terminator != TERMINATOR {
        wrong.push_str(&format!(
            "Credential should be scoped with a valid terminator: '{TERMINATOR}', not '{}'. ",
            scope.terminator
        ));
    }
    if !date.starts_with(&scope.date) || scope.date.len() != 8 {
        wrong.push_str(&format!(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{}' != '{}', from '{date}'. ",
            scope.date,
            date.get(..8).unwrap_or_default()
        ));
    }
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::invalid_signature(&wrong)) }
}

fn check_time(claim: &Claim, now: Timestamp) -> Result<(), ApiError> {
    let life = match &claim.expires {
        None => SKEW,
        Some(text) => {
            let seconds: Option<i64> = text.parse().ok().filter(|n| (1..=EXPIRES_MAX).contains(n));
            let seconds = seconds.ok_or_else(|| {
                ApiError::incomplete_signature(
                    "X-Amz-Expires must be a number of seconds between 1 and 604800",
                )
            })?;
            SignedDuration::from_secs(seconds)
        }
    };
    let age = now.duration_since(claim.date);
    let (date, present) = (date_text(claim.date), date_text(now));
    let minutes = SKEW.as_mins();
    let refuse = |text: String| Err(ApiError::invalid_signature(&text));
    if age > life {
        let earliest = now.checked_sub(life).map(date_text).unwrap_or_default();
        return refuse(format!(
            "Signature expired: {date} is now earlier than {earliest} ({present} - {} min.)",
            life.as_mins()
        ));
    }
    if age < -SKEW {
        let latest = now.checked_add(SKEW).map(date_text).unwrap_or_default();
        return refuse(format!(
            "Signature not yet current: {date} is still later than {latest} ({present} + {minutes} min.)"
        ));
    }
    Ok(())
}
