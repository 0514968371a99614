//! What the functions need of an object store: list, get, and put if nothing is there.
//!
//! No object is ever overwritten or deleted through this.

#[cfg(test)]
pub(crate) mod in_memory;
pub mod s3;

use bytes::Bytes;

use crate::failure::Failure;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectEntry {
    /// Its name (S3 calls it the key).
    pub name: String,
    /// Changes whenever the content does.
    pub entity_tag: String,
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object is new.
    Created {
        /// Its entity tag, if the store told it.
        entity_tag: Option<String>,
    },
    /// An object of that name was there; nothing was written.
    Exists,
    /// Somebody else is writing it just now; whether it will be there is not known.
    Contended,
}

/// A store of named objects with conditional put. Listings show every object whose put has been
/// answered (S3 is strongly consistent since 2020).
pub trait ObjectStore: Send + Sync {
    /// All objects whose names begin with `prefix`, in the order of their names.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<ObjectEntry>, Failure>> + Send;

    /// The content of an object; `None` if there is none.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Bytes>, Failure>> + Send;

    /// Creates an object unless one of that name is there.
    fn put_if_absent(
        &self,
        name: &str,
        content: Bytes,
        content_type: &str,
    ) -> impl Future<Output = Result<PutOutcome, Failure>> + Send;
}

impl<O: ObjectStore> ObjectStore for std::sync::Arc<O> {
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<ObjectEntry>, Failure>> + Send {
        self.as_ref().list(prefix)
    }

    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Bytes>, Failure>> + Send {
        self.as_ref().get(name)
    }

    fn put_if_absent(
        &self,
        name: &str,
        content: Bytes,
        content_type: &str,
    ) -> impl Future<Output = Result<PutOutcome, Failure>> + Send {
        self.as_ref().put_if_absent(name, content, content_type)
    }
}
