//! The interface of an object store: list, get, and put if absent.
//!
//! [`ObjectStore`] never overwrites or removes an object. [`ObjectMaintenance`] replaces and
//! removes objects that are unchanged since they were read; only compaction and erasure use it.

#[cfg(test)]
pub(crate) mod in_memory;
pub mod s3;

use bytes::Bytes;

use crate::failure::Failure;

/// Upper bound of the pages of one listing. A listing covers an hour, which has sixty buckets of at
/// most 99,999 parts, with 1,000 parts per page. Larger listings are processed page by page.
const LIST_PAGES_MAX: usize = 6_000;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectEntry {
    /// The name of the object (S3 calls it the key).
    pub name: String,
    /// The entity tag, which changes whenever the content changes.
    pub entity_tag: String,
    /// Size of the content.
    pub bytes: u64,
    /// When the object was written, in seconds since 1970 by the store's clock.
    pub written_seconds: u64,
}

/// One page of a listing of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects, in the order of their names. The list may be empty although more objects
    /// follow.
    pub entries: Vec<ObjectEntry>,
    /// The name after which the next page begins; `None` on the last page.
    pub after: Option<String>,
}

/// The result of removing noncurrent versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedVersions {
    /// Number of versions removed.
    pub contents: usize,
    /// The name after which the next call continues; `None` if no version is left.
    pub after: Option<String>,
}

/// The outcome of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object is new.
    Created {
        /// The entity tag of the object, if the store returned it.
        entity_tag: Option<String>,
    },
    /// An object of that name exists; nothing was written.
    Exists,
    /// Another request is writing the object at the same time. Whether the object will exist is
    /// unknown.
    Contended,
}

/// The outcome of a change to an object that was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The change was made.
    Changed,
    /// The object has a different entity tag or does not exist; nothing was written. The cause may
    /// be an earlier attempt of the same change whose response was lost.
    Stale,
}

/// A store whose objects can be changed and removed.
pub trait ObjectMaintenance: ObjectStore {
    /// Replaces an object's content if the object still has the entity tag. A concurrent change is
    /// a [`Failure::Retry`], because its outcome is unknown.
    fn replace(
        &self,
        name: &str,
        entity_tag: &str,
        content: Bytes,
        content_type: &str,
    ) -> impl Future<Output = Result<ChangeOutcome, Failure>> + Send;

    /// Removes an object if it still has the entity tag. A concurrent change is a
    /// [`Failure::Retry`], as in [`Self::replace`].
    fn remove(
        &self,
        name: &str,
        entity_tag: &str,
    ) -> impl Future<Output = Result<ChangeOutcome, Failure>> + Send;

    /// Removes some noncurrent versions of the objects whose names begin with `prefix` and come
    /// after `after`, including deleted objects. Does nothing if the bucket has no noncurrent
    /// versions.
    fn forget_earlier(
        &self,
        prefix: &str,
        after: &str,
    ) -> impl Future<Output = Result<RemovedVersions, Failure>> + Send;
}

/// A store of named objects with conditional put. A listing contains every object whose put was
/// acknowledged before the listing began, as on S3, which is strongly consistent.
pub trait ObjectStore: Send + Sync {
    /// Returns the next objects whose names begin with `prefix` and come after `after`. An empty
    /// `after` begins with the first object.
    fn page(&self, prefix: &str, after: &str)
    -> impl Future<Output = Result<Page, Failure>> + Send;

    /// Returns all objects whose names begin with `prefix`, in the order of their names.
    fn list(&self, prefix: &str) -> impl Future<Output = Result<Vec<ObjectEntry>, Failure>> + Send {
        async move {
            let (mut entries, mut after) = (Vec::new(), String::new());
            for _ in 0..LIST_PAGES_MAX {
                let page = self.page(prefix, &after).await?;
                entries.extend(page.entries);
                let Some(next) = page.after else { return Ok(entries) };
                after = next;
            }
            Err(Failure::Fatal(format!(
                "there are more than {LIST_PAGES_MAX} pages of objects under `{prefix}`; move objects of other programs out of this prefix"
            )))
        }
    }

    /// Returns the distinct folders under `prefix`. A folder is the text in an object's name from
    /// the end of `prefix` up to and including the next `/`.
    fn folders(&self, prefix: &str) -> impl Future<Output = Result<Vec<String>, Failure>> + Send;

    /// Returns the content of an object; `None` if the object does not exist.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Bytes>, Failure>> + Send;

    /// Creates an object unless an object of that name exists.
    fn put_if_absent(
        &self,
        name: &str,
        content: Bytes,
        content_type: &str,
    ) -> impl Future<Output = Result<PutOutcome, Failure>> + Send;
}

impl<O: ObjectStore> ObjectStore for std::sync::Arc<O> {
    fn page(
        &self,
        prefix: &str,
        after: &str,
    ) -> impl Future<Output = Result<Page, Failure>> + Send {
        self.as_ref().page(prefix, after)
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

    fn forget_earlier(
        &self,
        prefix: &str,
        after: &str,
    ) -> impl Future<Output = Result<RemovedVersions, Failure>> + Send {
        self.as_ref().forget_earlier(prefix, after)
    }
}
