//! The key for the MACs of tokens, such as shard iterators. With the MAC, the store accepts only tokens
//! that it has issued.
//!
//! The key is stored in a file of the data directory, so tokens are valid after a restart. The MAC of a
//! token covers its kind, its owner (an ARN, with account and Region) and its content; see `mac`. Tokens are
//! not encrypted.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::fatal::{Fatal, fatal};
use crate::mac::{MAC_BYTES, MacKey};

/// The name of the key's file in the data directory.
const FILE: &str = "token-key";
/// The length of the key in bytes.
const KEY_BYTES: usize = 32;

/// The secret key of a store.
#[derive(Clone)]
pub struct TokenKey([u8; KEY_BYTES]);

impl TokenKey {
    /// Returns a key with the given bytes.
    #[must_use]
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Opens the key of a data directory, and creates the key if it is missing.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read or created. The message includes what to do.
    pub fn open(directory: &Path) -> Result<Self, Fatal> {
        let path = directory.join(FILE);
        let remove = "remove the file; existing shard iterators then become invalid";
        match Self::read(&path, remove)? {
            Some(key) => Ok(key),
            None => Self::create(directory, &path)
                .map_err(|error| fatal!("cannot create `{}`: {error}", path.display())),
        }
    }

    /// Opens the key in the data directory of a node with peers. Does not create a missing key, because
    /// it would differ from the key of the other nodes, and this node would refuse their tokens.
    ///
    /// # Errors
    /// The file is missing or damaged, or cannot be read. The message includes what to do.
    pub(crate) fn of_member(directory: &Path) -> Result<Self, Fatal> {
        let path = directory.join(FILE);
        Self::read(&path, "copy the file from the data directory of another node")?.ok_or_else(|| {
            fatal!(
                "`{}` is missing: copy it from the data directory of another node; if no node has the file, write the same {KEY_BYTES} random bytes to it on every node",
                path.display()
            )
        })
    }

    fn read(path: &Path, remedy: &str) -> Result<Option<Self>, Fatal> {
        let name = path.display();
        match fs::read(path) {
            Ok(bytes) => <[u8; KEY_BYTES]>::try_from(bytes)
                .map(|key| Some(Self(key)))
                .map_err(|_| fatal!("`{name}` is damaged; {remedy}")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fatal!("cannot read `{name}`: {error}")),
        }
    }

    /// Stores the key of another node in a data directory.
    ///
    /// # Errors
    /// The bytes are not a key, or the file cannot be written.
    pub(crate) fn adopt(directory: &Path, bytes: &[u8]) -> Result<Self, Fatal> {
        let bytes = <[u8; KEY_BYTES]>::try_from(bytes).map_err(Fatal::new)?;
        Self::write(directory, &directory.join(FILE), bytes)
            .map_err(|error| fatal!("cannot write `{FILE}`: {error}"))
    }

    /// Returns the bytes of the key, for other nodes of the store.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn create(directory: &Path, path: &Path) -> std::io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        Self::write(directory, path, bytes)
    }

    /// Writes the key to a temporary file, and then renames the file, so that a crash leaves no
    /// partial key.
    fn write(directory: &Path, path: &Path, bytes: [u8; KEY_BYTES]) -> std::io::Result<Self> {
        let unfinished = directory.join(format!("{FILE}.new"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        fs::File::open(directory)?.sync_all()?;
        Ok(Self(bytes))
    }

    /// Returns the MAC of a token: of its kind, its owner and its content.
    #[must_use]
    pub fn mac(&self, kind: &str, belongs_to: &str, text: &[u8]) -> [u8; MAC_BYTES] {
        MacKey::new(&self.0).mac(&[kind.as_bytes(), belongs_to.as_bytes(), text])
    }

    /// Verifies a MAC in constant time.
    #[must_use]
    pub fn verify(&self, kind: &str, belongs_to: &str, text: &[u8], mac: &[u8]) -> bool {
        MacKey::new(&self.0).verify(&[kind.as_bytes(), belongs_to.as_bytes(), text], mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_a_restart_and_macs_are_bound_to_their_owner() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let first = TokenKey::open(folder.path()).unwrap();
        let mac = first.mac("a", "b", b"c");
        let second = TokenKey::open(folder.path()).unwrap();
        assert!(second.verify("a", "b", b"c", &mac));
        let file = folder.path().join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert!(!TokenKey::open(other.path()).unwrap().verify("a", "b", b"c", &mac));
        fs::write(&file, b"short").unwrap();
        assert!(
            TokenKey::open(folder.path())
                .is_err_and(|error| error.to_string().contains("; remove the file"))
        );
        let damaged = TokenKey::of_member(folder.path());
        assert!(damaged.is_err_and(|error| {
            error.to_string().contains("; copy the file from the data directory of another node")
        }));
        fs::remove_file(&file).unwrap();
        let missing = TokenKey::of_member(folder.path());
        assert!(missing.is_err_and(|error| error.to_string().contains("of another node")));
        assert!(!file.exists());
    }
}
