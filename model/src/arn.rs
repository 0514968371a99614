//! The ARNs of tables and streams.
//!
//! This module only parses and formats ARNs. It does not check whether the resource exists.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The ARN of a table: `arn:aws:dynamodb:<region>:<account>:table/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableArn {
    /// The region, such as `us-east-1`.
    pub region: String,
    /// The account number: twelve digits.
    pub account: String,
    /// The table's name.
    pub table: String,
}

/// The ARN of a stream: a table's ARN, `/stream/`, and the stream's label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamArn {
    /// The table that the stream belongs to.
    pub table: TableArn,
    /// The label: the time at which the stream was enabled, such as `2026-11-21T02:30:00.000`.
    pub label: String,
}

/// The error for a string that is not the expected kind of ARN.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid ARN: expected `{expected}`, got=`{got}`")]
pub struct ArnError {
    /// The expected form.
    pub expected: &'static str,
    /// The string that was parsed.
    pub got: String,
}

impl fmt::Display for TableArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arn:aws:dynamodb:{}:{}:table/{}", self.region, self.account, self.table)
    }
}

impl fmt::Display for StreamArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/stream/{}", self.table, self.label)
    }
}

impl FromStr for TableArn {
    type Err = ArnError;

    fn from_str(text: &str) -> Result<Self, ArnError> {
        let error = || ArnError {
            expected: "arn:aws:dynamodb:REGION:ACCOUNT:table/NAME",
            got: text.to_owned(),
        };
        let mut parts = text.splitn(6, ':');
        let [Some("arn"), Some(_), Some("dynamodb"), Some(region), Some(account), Some(resource)] =
            std::array::from_fn(|_| parts.next())
        else {
            return Err(error());
        };
        let table =
            resource.strip_prefix("table/").filter(|name| !name.is_empty() && !name.contains('/'));
        Ok(Self {
            region: region.to_owned(),
            account: account.to_owned(),
            table: table.ok_or_else(error)?.to_owned(),
        })
    }
}

impl FromStr for StreamArn {
    type Err = ArnError;

    fn from_str(text: &str) -> Result<Self, ArnError> {
        let error = || ArnError {
            expected: "arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/LABEL",
            got: text.to_owned(),
        };
        let (table, label) = text.split_once("/stream/").ok_or_else(error)?;
        if label.is_empty() || label.contains('/') {
            return Err(error());
        }
        Ok(Self { table: table.parse().map_err(|_| error())?, label: label.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip_or_are_refused() {
        let text =
            "arn:aws:dynamodb:us-east-1:000000000000:table/votes/stream/2026-11-21T02:30:00.000";
        let arn: StreamArn = text.parse().unwrap();
        assert_eq!(
            (arn.table.table.as_str(), arn.label.as_str()),
            ("votes", "2026-11-21T02:30:00.000")
        );
        assert_eq!(arn.to_string(), text);
        assert_eq!(arn.table.to_string().parse(), Ok(arn.table));
        for wrong in [
            "",
            "votes",
            "arn:aws:s3:::bucket",
            "arn:aws:dynamodb:r:a:table/",
            "arn:aws:dynamodb:r:a:table/t/stream/",
        ] {
            assert!(wrong.parse::<StreamArn>().is_err(), "{wrong}");
        }
    }
}
