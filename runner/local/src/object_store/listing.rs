//! Lists the keys of a bucket in order, page by page, with common prefixes.
//!
//! A listing reads only folders, not the contents of objects. Keys are ordered by their UTF-8 bytes, as in
//! S3.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    vec,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{Error, key};

/// The maximum number of keys in one page. Source: Amazon S3 API reference, ListObjectsV2.
pub(super) const PAGE_MAX: usize = 1_000;

/// The position of a listing: all keys up to this position were listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// All keys up to and including this key.
    Key(String),
    /// All keys up to this prefix, and all keys that begin with this prefix.
    Prefix(String),
}

/// The parameters of a listing.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    /// Only keys that begin with this prefix are listed.
    pub(super) prefix: String,
    /// The delimiter. Keys that are equal up to the first delimiter after the prefix are listed as
    /// one common prefix.
    pub(super) delimiter: Option<String>,
    pub(super) after: Option<Place>,
    /// The maximum number of keys and common prefixes together, at most `PAGE_MAX`.
    pub(super) limit: usize,
}

/// One page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) keys: Vec<String>,
    pub(super) prefixes: Vec<String>,
    /// The position where the next page begins; `None` for the last page.
    pub(super) next: Option<Place>,
}

impl Place {
    /// Returns the position as an opaque token for clients.
    pub(super) fn to_token(&self) -> String {
        URL_SAFE_NO_PAD.encode(match self {
            Self::Key(key) => format!("k{key}"),
            Self::Prefix(prefix) => format!("p{prefix}"),
        })
    }

    pub(super) fn from_token(token: &str) -> Result<Self, Error> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let place = text.as_deref().and_then(|text| match text.split_at_checked(1)? {
            ("k", key) => Some(Self::Key(key.to_owned())),
            ("p", prefix) => Some(Self::Prefix(prefix.to_owned())),
            _ => None,
        });
        place.ok_or_else(|| {
            Error::InvalidArgument(
                "the continuation token was not issued by this endpoint".to_owned(),
            )
        })
    }

    /// Returns whether all keys below the folder with this prefix were listed.
    fn covers_folder(&self, folder: &str) -> bool {
        match self {
            Self::Key(key) => key.as_str() > folder && !key.starts_with(folder),
            Self::Prefix(prefix) => {
                folder.starts_with(prefix)
                    || (prefix.as_str() > folder && !prefix.starts_with(folder))
            }
        }
    }

    fn covers_key(&self, candidate: &str) -> bool {
        match self {
            Self::Key(key) => candidate <= key.as_str(),
            Self::Prefix(prefix) => candidate.starts_with(prefix) || candidate < prefix.as_str(),
        }
    }
}

/// Returns one page of the keys in the bucket's `folder`.
pub(super) fn list(folder: &Path, query: &Query) -> Result<Page, Error> {
    let mut page = Page::default();
    let limit = query.limit.min(PAGE_MAX);
    if limit == 0 {
        return Ok(page);
    }
    let mut after = query.after.clone();
    let mut walk = Walk::start(folder, &query.prefix)?;
    while let Some(key) = walk.next(after.as_ref())? {
        if page.keys.len() + page.prefixes.len() == limit {
            page.next = after;
            break;
        }
        let place = match common_prefix(&key, query) {
            Some(prefix) => {
                page.prefixes.push(prefix.clone());
                Place::Prefix(prefix)
            }
            None => {
                page.keys.push(key.clone());
                Place::Key(key)
            }
        };
        after = Some(place);
    }
    Ok(page)
}

fn common_prefix(key: &str, query: &Query) -> Option<String> {
    let delimiter = query.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.strip_prefix(query.prefix.as_str())?;
    let end = query.prefix.len() + rest.find(delimiter)? + delimiter.len();
    key.get(..end).map(str::to_owned)
}

/// A walk through folders, in key order.
struct Walk {
    prefix: String,
    levels: Vec<Level>,
}

struct Level {
    /// The common prefix of all keys below: empty, or ending with a slash.
    prefix: String,
    path: PathBuf,
    entries: vec::IntoIter<(String, PathBuf)>,
}

impl Walk {
    fn start(folder: &Path, prefix: &str) -> Result<Self, Error> {
        let mut walk = Self { prefix: prefix.to_owned(), levels: Vec::new() };
        // Opens the folders that the prefix names completely, without listing their parents.
        let (mut path, mut start) = (folder.to_owned(), "");
        if let Some((parents, _)) = prefix.rsplit_once('/') {
            path.extend(parents.split('/').map(key::name_of));
            start = prefix.get(..=parents.len()).unwrap_or_default();
        }
        walk.enter(path, start.to_owned())?;
        Ok(walk)
    }

    /// Returns the next key with the prefix that is after `after`.
    fn next(&mut self, after: Option<&Place>) -> Result<Option<String>, Error> {
        while let Some(level) = self.levels.last_mut() {
            let Some((name, file)) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            let key = format!("{}{name}", level.prefix);
            let path = level.path.join(file);
            // In this list, the names of folders end with a slash.
            let folder = name.ends_with('/');
            let wanted = key.starts_with(&self.prefix) || (folder && self.prefix.starts_with(&key));
            let covered = after.is_some_and(|after| {
                if folder { after.covers_folder(&key) } else { after.covers_key(&key) }
            });
            match (wanted && !covered, folder) {
                (false, _) => {}
                (true, true) => self.enter(path, key)?,
                (true, false) => return Ok(Some(key)),
            }
        }
        Ok(None)
    }

    fn enter(&mut self, path: PathBuf, prefix: String) -> Result<(), Error> {
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            // A concurrent delete may have removed the folder, or the prefix may name no folder.
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => {
                    return Ok(());
                }
                _ => return Err(Error::disk("list", path)(error)),
            },
        };
        let mut named = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::disk("list", &path))?;
            let Ok(kind) = entry.file_type() else { continue };
            let file = PathBuf::from(entry.file_name());
            let Some(part) = file.to_str().and_then(key::part_of) else { continue };
            if kind.is_dir() {
                // Adds a slash to a folder's name before sorting, because the keys below the folder
                // contain it.
                named.push((format!("{part}/"), file));
            } else if kind.is_file() {
                named.push((part, file));
            }
        }
        named.sort();
        self.levels.push(Level { prefix, path, entries: named.into_iter() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the expected page for a sorted set of keys, according to S3's documentation.
    fn model(keys: &BTreeSet<String>, query: &Query) -> Page {
        let mut page = Page::default();
        for key in keys.iter().filter(|key| key.starts_with(&query.prefix)) {
            if query.after.as_ref().is_some_and(|after| after.covers_key(key)) {
                continue;
            }
            match common_prefix(key, query) {
                Some(prefix) if page.prefixes.contains(&prefix) => {}
                Some(prefix) => page.prefixes.push(prefix),
                None => page.keys.push(key.clone()),
            }
        }
        page
    }

    fn write(folder: &Path, keys: &BTreeSet<String>) -> BTreeSet<String> {
        let mut written = BTreeSet::new();
        for key in keys {
            let path = folder.join(key::path_of(key).unwrap());
            let made = fs::create_dir_all(path.parent().unwrap());
            if made.is_ok() && fs::write(&path, "").is_ok() {
                written.insert(key.clone());
            }
        }
        written
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn pages_together_are_the_listing_of_the_sorted_keys(
            keys in prop::collection::btree_set("[ab/\\-.%~]{1,6}", 0..25),
            prefix in "[ab/\\-]{0,3}",
            delimiter in prop::option::of("(/|-|a/)"),
            after in prop::option::of("[ab/\\-.]{1,4}"),
            limit in 1_usize..5,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let keys = write(folder.path(), &keys);
            let after = after.map(Place::Key);
            let mut query = Query { prefix, delimiter, after, limit };
            let expected = model(&keys, &query);
            let mut all = Page::default();
            loop {
                let page = list(folder.path(), &query).unwrap();
                prop_assert!(page.keys.len() + page.prefixes.len() <= limit);
                all.keys.extend(page.keys);
                all.prefixes.extend(page.prefixes);
                let Some(next) = page.next else { break };
                let token = next.to_token();
                query.after = Some(Place::from_token(&token).unwrap());
            }
            prop_assert_eq!(all, expected);
        }
    }

    #[test]
    fn foreign_files_and_tokens_are_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        fs::write(folder.path().join("%~a"), "").unwrap();
        fs::create_dir(folder.path().join("empty")).unwrap();
        let query = Query { delimiter: Some("/".to_owned()), limit: 10, ..Query::default() };
        let page = list(folder.path(), &query).unwrap();
        assert_eq!(page.keys, ["a"]);
        assert_eq!(page.prefixes, Vec::<String>::new(), "an empty folder holds no key");
        for token in ["", "k", "%%%", "eA"] {
            let parsed = Place::from_token(token);
            assert!(matches!(parsed, Err(Error::InvalidArgument(_))), "{token}: {parsed:?}");
        }
    }
}
