//! The secret of a cluster: what its processes prove to each other that they know, when they do not
//! all run on one machine. Nothing is encrypted with it.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hmac::digest::FixedOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The length of a mark in bytes.
pub(super) const MARK_BYTES: usize = 16;
/// A shorter secret could be guessed.
const SECRET_BYTES_MIN: usize = 16;
/// A longer one is some other file.
const SECRET_BYTES_MAX: usize = 4096;

/// A secret that all processes of a cluster know.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(Vec<u8>);

/// Without the secret, so that it gets into no log.
impl fmt::Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterSecret")
    }
}

impl ClusterSecret {
    /// Reads a file; white space around the secret does not count.
    ///
    /// # Errors
    /// What is wrong and what to write instead, in one line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let metadata =
            fs::metadata(path).map_err(|error| format!("cannot read `{name}`: {error}"))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!("`{name}` can be read by others on this machine: `chmod 600 {name}`");
        }
        let bytes = fs::read(path).map_err(|error| format!("cannot read `{name}`: {error}"))?;
        let secret = bytes.trim_ascii();
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
            return Err(format!(
                "`{name}` holds a secret of {} bytes, which must have {SECRET_BYTES_MIN} to \
                 {SECRET_BYTES_MAX}: make one with `openssl rand -hex 32`",
                secret.len()
            ));
        }
        Ok(Self(secret.to_vec()))
    }

    /// A key for one purpose, from the secret and what both sides have seen.
    pub(super) fn derive(&self, purpose: &str, seen: &[&[u8]]) -> Key {
        let mut mac = keyed(&self.0);
        for part in std::iter::once(purpose.as_bytes()).chain(seen.iter().copied()) {
            // Lengths stand before the parts, so that no two lists of parts give the same bytes.
            mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            mac.update(part);
        }
        Key(keyed(&mac.finalize_fixed()))
    }
}

/// A key that marks bytes.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    /// The mark of the parts one after another; the caller sees to it that they cannot be mistaken.
    pub(super) fn mark(&self, parts: &[&[u8]]) -> [u8; MARK_BYTES] {
        let mut mark = [0; MARK_BYTES];
        for (to, from) in mark.iter_mut().zip(self.over(parts).finalize_fixed()) {
            *to = from;
        }
        mark
    }

    /// Whether a mark is right. It takes the same time wherever marks differ.
    pub(super) fn is_right(&self, parts: &[&[u8]], mark: &[u8]) -> bool {
        mark.len() == MARK_BYTES && self.over(parts).verify_truncated_left(mark).is_ok()
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

/// HMAC takes keys of every length; this library has no other error.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_secrets_are_refused_and_marks_depend_on_everything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "short\n").unwrap();
        assert!(ClusterSecret::read(&path).unwrap_err().contains("5 bytes"));
        fs::write(&path, "  0123456789abcdef\n").unwrap();
        let secret = ClusterSecret::read(&path).unwrap();
        let key = secret.derive("a", &[b"b", b"c"]);
        let mark = key.mark(&[b"text"]);
        assert!(key.is_right(&[b"te", b"xt"], &mark));
        assert!(!key.is_right(&[b"texT"], &mark));
        assert!(!key.is_right(&[b"text"], &mark[..15]));
        for other in [secret.derive("a", &[b"bc"]), secret.derive("b", &[b"b", b"c"])] {
            assert!(!other.is_right(&[b"text"], &mark));
        }
    }
}
