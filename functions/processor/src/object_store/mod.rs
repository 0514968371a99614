//! What the functions need of an object store: list, get, and put if nothing is there.
//!
//! Through [`ObjectStore`] no object is ever overwritten or removed; only who keeps the archive in
//! shape gets an [`ObjectMaintenance`], which does so if the object is still the one that was read.

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
    /// Size of the content.
    pub bytes: u64,
    /// When the object was written, in seconds since 1970 by the store's clock.
    pub written_seconds: u64,
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

/// What became of a change to an object that was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It was made.
    Made,
    /// The object is another one by now, or gone; nothing was changed.
    Stale,
}

/// A store whose objects can be changed and removed.
pub trait ObjectMaintenance: ObjectStore {
    /// Gives an object other content if it still has the entity tag.
    fn replace(
        &self,
        name: &str,
        entity_tag: &str,
        content: Bytes,
        content_type: &str,
    ) -> impl Future<Output = Result<ChangeOutcome, Failure>> + Send;

    /// Removes an object if it still has the entity tag.
    fn remove(
        &self,
        name: &str,
        entity_tag: &str,
    ) -> impl Future<Output = Result<ChangeOutcome, Failure>> + Send;

    /// Removes what a versioned bucket keeps of an object's earlier contents, and answers how many
    /// it were. Zero where the bucket keeps none.
    fn forget_earlier(&self, name: &str) -> impl Future<Output = Result<usize, Failure>> + Send;
}

/// A store of named objects with conditional put. Listings show every object whose put has been
/// answered (S3 is strongly consistent since 2020).
pub trait ObjectStore: Send + Sync {
    /// All objects whose names begin with `prefix`, in the order of their names.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<ObjectEntry>, Failure>> + Send;

    /// What stands in the names of objects after `prefix`, up to and with the next `/`: its
    /// folders, each once.
    fn folders(&self, prefix: &str) -> impl Future<Output = Result<Vec<String>, Failure>> + Send;

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

    fn folders(&self, prefix: &str) -> impl Future<Output = Result<Vec<String>, Failure>> + Send {
        self.as_ref().folders(prefix)
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

impl<O: ObjectMaintenance> ObjectMaintenance for std::sync::Arc<O> {
    fn replace(
        &self,
        name: &str,
        entity_tag: &str,
        content: Bytes,
        content_type: &str,
    ) -> impl Future<Output = Result<ChangeOutcome, Failure>> + Send {
        self.as_ref().replace(name, entity_tag, content, content_type)
    }

    fn remove(
        &self,
        name: &str,
        entity_tag: &str,
    ) -> impl Future<Output = Result<ChangeOutcome, Failure>> + Send {
        self.as_ref().remove(name, entity_tag)
    }

    fn forget_earlier(&self, name: &str) -> impl Future<Output = Result<usize, Failure>> + Send {
        self.as_ref().forget_earlier(name)
    }
}
