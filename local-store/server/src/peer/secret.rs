//! The secret of a cluster, with which processes on different computers authenticate each other.
//! The secret does not encrypt messages.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::fatal::{Fatal, fatal};
use crate::mac::MacKey;

/// The minimum length of a secret in bytes. A shorter secret could be guessed.
const SECRET_BYTES_MIN: usize = 16;
/// The maximum length of a secret in bytes. A longer file is probably a wrong file.
const SECRET_BYTES_MAX: usize = 4096;

/// The secret that all processes of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(Vec<u8>);

/// Omits the secret, so that no log contains it.
impl fmt::Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterSecret")
    }
}

impl ClusterSecret {
    /// Reads the secret from a file. White space around the secret is ignored.
    ///
    /// # Errors
    /// A message of one line: the error and how to correct it.
    pub fn read(path: &Path) -> Result<Self, Fatal> {
        let name = path.display();
        let metadata =
            fs::metadata(path).map_err(|error| fatal!("cannot read `{name}`: {error}"))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!("other users of this machine can read `{name}`: run `chmod 600 {name}`");
        }
        let bytes = fs::read(path).map_err(|error| fatal!("cannot read `{name}`: {error}"))?;
        let secret = bytes.trim_ascii();
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
            return Err(fatal!(
                "`{name}` contains a secret of {} bytes, which must have {SECRET_BYTES_MIN} to \
                 {SECRET_BYTES_MAX}: make one with `openssl rand -hex 32`",
                secret.len()
            ));
        }
        Ok(Self(secret.to_vec()))
    }

    /// Derives a key from the secret for one purpose. `seen` is data of the handshake that both nodes
    /// have.
    pub(super) fn derive(&self, purpose: &str, seen: &[&[u8]]) -> MacKey {
        let parts: Vec<&[u8]> =
            std::iter::once(purpose.as_bytes()).chain(seen.iter().copied()).collect();
        MacKey::new(&self.0).derive(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_secrets_are_refused_and_keys_depend_on_everything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "short\n").unwrap();
        assert!(ClusterSecret::read(&path).unwrap_err().to_string().contains("5 bytes"));
        fs::write(&path, "  0123456789abcdef\n").unwrap();
        let secret = ClusterSecret::read(&path).unwrap();
        let key = secret.derive("a", &[b"b", b"c"]);
        let mac = key.mac(&[b"text"]);
        assert!(key.verify(&[b"text"], &mac));
        for other in [secret.derive("a", &[b"bc"]), secret.derive("b", &[b"b", b"c"])] {
            assert!(!other.verify(&[b"text"], &mac));
        }
    }
}
