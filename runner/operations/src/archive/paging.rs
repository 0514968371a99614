//! Lists the objects of an archive, page after page, while compaction changes them.
//!
//! Compaction creates an object before it removes the parts whose rows it took, and its objects come
//! before the parts of their day. So a listing that goes on in the midst of a day, behind the place
//! of an object that was created meanwhile, would have neither that object nor the parts. Of each day
//! in which a page ended, the compacted objects are listed again: they are there before the parts
//! are gone. A single page is of one moment. What is in the objects is not looked at.

use std::collections::{BTreeMap, BTreeSet};

/// What the names of compacted objects begin with, behind their folder.
pub(super) const COMPACTED: &str = "compact-";
/// Pages of one listing at most, 1,000 objects each: more than an archive of some decades has.
const PAGES_MAX: usize = 1_000_000;

/// Some of the objects of a listing, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectPage {
    /// Names and sizes.
    pub(super) objects: Vec<(String, u64)>,
    /// What to ask for the next page with; `None` behind the last one.
    pub(super) next: Option<String>,
}

/// The objects whose names begin with `prefix`, with their sizes, as `ask` answers for a prefix and a
/// page; `None` if it says that there is no such bucket.
///
/// # Errors
/// What `ask` fails with, or a listing without an end.
pub(super) async fn objects(
    prefix: &str,
    ask: impl AsyncFn(&str, Option<String>) -> Result<Option<ObjectPage>, String>,
) -> Result<Option<BTreeMap<String, u64>>, String> {
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
    /// Folders in which a page ended, but the last one.
    broken: BTreeSet<String>,
}

async fn listing(
    prefix: &str,
    ask: &impl AsyncFn(&str, Option<String>) -> Result<Option<ObjectPage>, String>,
) -> Result<Option<Listing>, String> {
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
    Err(format!("there are more than {PAGES_MAX} pages of objects under `{prefix}`"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Objects, two in a page; a page's token is the name behind which the next one begins.
    fn page(objects: &BTreeSet<String>, prefix: &str, token: Option<String>) -> ObjectPage {
        let after = token.unwrap_or_default();
        let found = objects.iter().filter(|name| name.starts_with(prefix) && **name > after);
        let mut found: Vec<(String, u64)> = found.map(|name| (name.clone(), 1)).collect();
        let is_last = found.len() <= 2;
        found.truncate(2);
        let next = found.last().filter(|_| !is_last).map(|(name, _)| name.clone());
        ObjectPage { objects: found, next }
    }

    /// An hour of the day before is compacted after one of the pages. Its rows are in what was
    /// listed all the same.
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

    /// A page may hold nothing and not be the last.
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
