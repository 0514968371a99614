//! Lists the objects of an archive, page by page, while compaction changes them.
//!
//! Compaction creates an object, then removes the parts whose rows the object contains. Names of
//! compacted objects sort before the parts of their day. A listing that continues within a day
//! could therefore miss both the new object and the removed parts. To avoid this, the compacted
//! objects of each day in which a page ended are listed again. A single page is consistent.

use std::collections::{BTreeMap, BTreeSet};

use client::failure::{Result, fatal};

/// Name prefix of compacted objects within their folder.
pub(super) const COMPACTED: &str = "compact-";
/// Maximum number of pages of a listing, 1,000 objects each: more than an archive of some decades
/// has.
const PAGES_MAX: usize = 1_000_000;

/// A page of a listing, ordered by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectPage {
    /// Names and sizes.
    pub(super) objects: Vec<(String, u64)>,
    /// The token of the next page; `None` after the last page.
    pub(super) next: Option<String>,
}

/// Returns the objects with a prefix and their sizes. `ask` returns one page, or `None` if the
/// bucket does not exist.
///
/// # Errors
/// When `ask` fails, or the listing has more than [`PAGES_MAX`] pages.
pub(super) async fn objects(
    prefix: &str,
    ask: impl AsyncFn(&str, Option<String>) -> Result<Option<ObjectPage>>,
) -> Result<Option<BTreeMap<String, u64>>> {
    let Some(mut listing) = listing(prefix, &ask).await? else { return Ok(None) };
    let again = listing.broken.iter().map(|folder| format!("{folder}{COMPACTED}"));
    for compacted in again.filter(|compacted| compacted.starts_with(prefix)) {
        let Some(now) = self::listing(&compacted, &ask).await? else { return Ok(None) };
        listing.objects.extend(now.objects);
    }
    Ok(Some(listing.objects))
}

#[derive(Default)]
struct Listing {
    objects: BTreeMap<String, u64>,
    /// The folders within which a page ended, so that the next page continues in the same folder.
    broken: BTreeSet<String>,
}

async fn listing(
    prefix: &str,
    ask: &impl AsyncFn(&str, Option<String>) -> Result<Option<ObjectPage>>,
) -> Result<Option<Listing>> {
    let (mut listing, mut token) = (Listing::default(), None);
    for _ in 0..PAGES_MAX {
        let Some(page) = ask(prefix, token).await? else { return Ok(None) };
        listing.objects.extend(page.objects);
        if page.next.is_none() {
            return Ok(Some(listing));
        }
        token = page.next;
        let last = listing.objects.last_key_value().map_or("", |(name, _)| name.as_str());
        let folder = last.rfind('/').and_then(|slash| last.get(..=slash));
        listing.broken.extend(folder.map(str::to_owned));
    }
    Err(fatal!("more than {PAGES_MAX} pages of objects under `{prefix}`"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Returns a page of two objects. The token is the last name of the previous page.
    fn page(objects: &BTreeSet<String>, prefix: &str, token: Option<String>) -> ObjectPage {
        let after = token.unwrap_or_default();
        let found = objects.iter().filter(|name| name.starts_with(prefix) && **name > after);
        let mut found: Vec<(String, u64)> = found.map(|name| (name.clone(), 1)).collect();
        let is_last = found.len() <= 2;
        found.truncate(2);
        let next = found.last().filter(|_| !is_last).map(|(name, _)| name.clone());
        ObjectPage { objects: found, next }
    }

    /// An hour of the previous day is compacted after a page was listed. The listing nevertheless
    /// contains its rows.
    #[tokio::test]
    async fn an_hour_that_is_compacted_between_two_pages_is_listed() {
        let name = |file: &str| format!("a/table=t/{file}.parquet");
        let parts = ["dt=1/part-x-1T2301-1", "dt=1/part-x-1T2302-1"].map(name);
        let others = [
            "dt=0/part-x-0T0001-1",
            "dt=1/compact-x-1T01-1",
            "dt=1/part-x-1T2201-1",
            "dt=2/part-x-2T0001-1",
        ];
        let compacted = name("dt=1/compact-x-1T23-1");
        for pages_before in 1..=4 {
            let bucket: BTreeSet<String> =
                others.map(name).into_iter().chain(parts.clone()).collect();
            let (bucket, asked) = (RefCell::new(bucket), RefCell::new(0));
            let ask = async |prefix: &str, token: Option<String>| {
                let found = page(&bucket.borrow(), prefix, token);
                *asked.borrow_mut() += 1;
                if *asked.borrow() == pages_before {
                    bucket.borrow_mut().insert(compacted.clone());
                    bucket.borrow_mut().retain(|name| !parts.contains(name));
                }
                Ok(Some(found))
            };
            let found = objects("a/", ask).await.unwrap().unwrap();
            let has_parts = parts.iter().all(|part| found.contains_key(part));
            assert!(has_parts || found.contains_key(&compacted), "{pages_before}: {found:?}");
            assert!(others.map(name).iter().all(|other| found.contains_key(other)), "{found:?}");
        }
    }

    #[tokio::test]
    async fn one_page_is_asked_for_once_and_no_bucket_is_none() {
        let asked = RefCell::new(0);
        let ask = async |prefix: &str, token| {
            *asked.borrow_mut() += 1;
            Ok(Some(page(&BTreeSet::from(["a/table=t/dt=1/p".to_owned()]), prefix, token)))
        };
        assert_eq!(objects("a/", ask).await.unwrap().unwrap().len(), 1);
        assert_eq!(*asked.borrow(), 1);
        assert_eq!(objects("a/", async |_: &str, _| Ok(None)).await, Ok(None));
    }

    /// An empty page need not be the last page.
    #[tokio::test]
    async fn an_empty_page_does_not_end_a_listing() {
        let ask = async |_: &str, token: Option<String>| {
            Ok(Some(match token.as_deref() {
                None => ObjectPage { objects: Vec::new(), next: Some("1".to_owned()) },
                Some(_) => ObjectPage { objects: vec![("a/p".to_owned(), 1)], next: None },
            }))
        };
        assert_eq!(objects("a/", ask).await.unwrap().unwrap().len(), 1);
    }
}
