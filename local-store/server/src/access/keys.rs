//! Access keys from a file in the format of `~/.aws/credentials`.
//!
//! Each section has `aws_access_key_id` and `aws_secret_access_key`, and may have `aws_account_id`.
//! Other settings are ignored. No message contains a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::requester::is_account;
use crate::fatal::{Fatal, fatal};

/// The maximum size of the file in bytes, enough for thousands of keys.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Access keys with their secrets.
#[derive(Clone, Default)]
pub struct AccessKeys(BTreeMap<String, Key>);

/// The secret and the account of an access key.
#[derive(Clone)]
struct Key {
    secret: String,
    account: Option<String>,
}

/// Omits the secrets, so that no log contains them.
impl fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A section of the file during parsing.
#[derive(Default)]
struct Section {
    line: usize,
    id: Option<String>,
    secret: Option<String>,
    account: Option<String>,
}

impl AccessKeys {
    /// Reads the access keys from a file.
    ///
    /// # Errors
    /// A message of one line: the problem, its line in the file, and how to correct it.
    pub fn read(path: &Path) -> Result<Self, Fatal> {
        let name = path.display();
        let metadata =
            fs::metadata(path).map_err(|error| fatal!("cannot read `{name}`: {error}"))?;
        if metadata.len() > FILE_BYTES_MAX {
            return Err(fatal!("`{name}` is larger than {FILE_BYTES_MAX} bytes"));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!("other users of this machine can read `{name}`: run `chmod 600 {name}`");
        }
        let text =
            fs::read_to_string(path).map_err(|error| fatal!("cannot read `{name}`: {error}"))?;
        Self::parse(&text).map_err(|error| fatal!("`{name}`: {error}"))
    }

    /// Parses the contents of a file.
    ///
    /// # Errors
    /// A message with the problem and its line in the file.
    pub fn parse(text: &str) -> Result<Self, Fatal> {
        let mut keys = Self::default();
        let mut section: Option<Section> = None;
        for (position, line) in text.lines().enumerate() {
            let (number, line) = (position + 1, line.trim());
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if line.starts_with('[') && line.ends_with(']') {
                keys.end(section.replace(Section { line: number, ..Section::default() }))?;
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return Err(fatal!("line {number}: expected `[section]` or `name = value`"));
            };
            let Some(section) = &mut section else {
                return Err(fatal!(
                    "line {number}: expected a `[section]` before the first setting"
                ));
            };
            let value = value.trim().to_owned();
            match name.trim() {
                "aws_access_key_id" => section.id = Some(value),
                "aws_secret_access_key" => section.secret = Some(value),
                "aws_account_id" => section.account = Some(value),
                _ => {}
            }
        }
        keys.end(section)?;
        if keys.0.is_empty() {
            return Err(fatal!(
                "there is no access key; expected a section with `aws_access_key_id` and `aws_secret_access_key`"
            ));
        }
        Ok(keys)
    }

    fn end(&mut self, section: Option<Section>) -> Result<(), Fatal> {
        let Some(Section { line, id, secret, account }) = section else { return Ok(()) };
        let (Some(id), Some(secret)) = (id, secret) else {
            return Err(fatal!(
                "line {line}: the section must have `aws_access_key_id` and `aws_secret_access_key`"
            ));
        };
        if id.is_empty() || secret.is_empty() || id.contains(['/', ',', ' ']) {
            return Err(fatal!(
                "line {line}: the id and the secret must not be empty, and the id must not contain `/`, `,` or a space"
            ));
        }
        if account.as_deref().is_some_and(|account| !is_account(account)) {
            return Err(fatal!("line {line}: `aws_account_id` must have twelve digits"));
        }
        if self.0.insert(id, Key { secret, account }).is_some() {
            return Err(fatal!("line {line}: duplicate `aws_access_key_id`"));
        }
        Ok(())
    }

    /// Returns the secret of an access key.
    pub(super) fn secret(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(|key| key.secret.as_str())
    }

    /// Returns the account of an access key, if the file has one.
    pub(super) fn account(&self, id: &str) -> Option<&str> {
        self.0.get(id)?.account.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_parsed_as_by_the_aws_tools() {
        let text = "# people\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=a/b+c=\n\
                    region = eu-west-1\n\n; a function\n[counters]\naws_access_key_id=AKIA2\n\
                    aws_secret_access_key = s\naws_account_id = 123456789012\n";
        let keys = AccessKeys::parse(text).unwrap();
        assert_eq!((keys.secret("AKIA1"), keys.secret("AKIA2")), (Some("a/b+c="), Some("s")));
        assert_eq!((keys.account("AKIA1"), keys.account("AKIA2")), (None, Some("123456789012")));
        assert_eq!((keys.secret("AKIA3"), keys.secret("default")), (None, None));
        assert_eq!(format!("{keys:?}"), r#"{"AKIA1", "AKIA2"}"#);
    }

    #[test]
    fn errors_have_their_line_and_no_secrets() {
        for (text, part) in [
            ("", "there is no access key"),
            ("aws_access_key_id = A", "line 1: expected a `[section]`"),
            ("[a]\nhidden", "line 2: expected `[section]` or"),
            ("[a]\naws_access_key_id = A", "line 1: the section must have"),
            ("[a]\n[b]\naws_access_key_id = A\naws_secret_access_key = hidden", "line 1: the"),
            (
                "[a]\naws_access_key_id = A/B\naws_secret_access_key = hidden",
                "line 1: the id and the secret must",
            ),
            (
                "[a]\naws_access_key_id = A\naws_secret_access_key =",
                "line 1: the id and the secret must",
            ),
            (
                "[a]\naws_access_key_id = A\naws_secret_access_key = hidden\naws_account_id = 12",
                "line 1: `aws_account_id` must",
            ),
            (
                "[a]\naws_access_key_id = A\naws_secret_access_key = hidden\n\
                 [b]\naws_access_key_id = A\naws_secret_access_key = hidden",
                "line 4: duplicate",
            ),
        ] {
            let error = AccessKeys::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("hidden"), "{text}: {error}");
        }
    }
}
