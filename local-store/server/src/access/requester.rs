//! The account and the Region of a request, for a store with separate tables for each account and
//! Region.
//!
//! `signature` verifies signatures; this module only reads the account and the Region from them.

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::AccessKeys;
use super::claim;
use crate::api::error::ApiError;

/// The number of digits of an account.
const ACCOUNT_DIGITS: usize = 12;
/// The maximum length of a Region's name in bytes. All real names are shorter.
const REGION_LENGTH_MAX: usize = 32;

/// The sender of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    /// The account of the access key, if the key has an account.
    pub(crate) account: Option<String>,
    /// The Region for which the request is signed.
    pub(crate) region: String,
}

/// Returns whether a string is an account id: twelve digits.
pub(super) fn is_account(text: &str) -> bool {
    text.len() == ACCOUNT_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the sender of a request; `None` if the request is not signed.
///
/// The account is the `aws_account_id` of the access key in the file of access keys. If the file has
/// no such setting, an access key of twelve digits is used as the account.
///
/// # Errors
/// `IncompleteSignatureException` or `InvalidSignatureException`: the signature is malformed.
pub(crate) fn requester(
    keys: Option<&AccessKeys>,
    head: &Parts,
) -> Result<Option<Requester>, ApiError> {
    let is_presigned = head.uri.query().is_some_and(|query| query.contains("X-Amz-Algorithm"));
    if !head.headers.contains_key(AUTHORIZATION) && !is_presigned {
        return Ok(None);
    }
    let claim = claim::read(head)?;
    let region = claim.scope.region;
    let is_region = (1..=REGION_LENGTH_MAX).contains(&region.len())
        && region.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !is_region {
        return Err(ApiError::invalid_signature(&format!(
            "Credential should be scoped to a valid region, not '{region}'. "
        )));
    }
    let of_file = keys.and_then(|keys| keys.account(&claim.access_key));
    let own = Some(claim.access_key.as_str()).filter(|key| is_account(key));
    Ok(Some(Requester { account: of_file.or(own).map(str::to_owned), region }))
}
