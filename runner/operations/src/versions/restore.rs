//! `weir versions restore`: restores an item from a version.
//!
//! The write is an ordinary change of the item, so it becomes the next version, and the replaced
//! item stays in the history. Its condition is that the item equals the current version and lacks
//! the attributes that the write would add. No condition can detect other attributes that are added
//! concurrently; the history keeps them in a separate version.
//!
//! The marks of a migration are not part of an item: they are neither compared nor restored. A
//! version with an expired time to live is refused, because TTL would soon delete the item again.

use model::{AttributeValue, Item, json};
use rules::marks::without_marks;
use rules::time_to_live;
use rules::versions::Version;

use super::Place;
use super::reading::current_item;
use crate::unchanged::Unchanged;
use client::attribute::to_sdk_item;
use client::exit::Exit;
use client::failure::{Context, Result, fatal, refused};
use client::output::{say, show};
use client::sdk_error::was_applied;
use client::table_description::ttl_attribute;

/// Restores `version`; with a dry run, shows what would be written.
///
/// # Errors
/// When the item cannot be read or written, or would lack a part of its key.
pub(super) async fn run(
    place: &Place,
    key: &Item,
    versions: &[Version],
    version: &Version,
    without: &[String],
    dry_run: bool,
) -> Result<Exit> {
    if let Some(name) = without.iter().find(|name| key.contains_key(*name)) {
        return Err(fatal!(
            "--without {name}: an item cannot be restored without its key attribute"
        ));
    }
    let mut wanted = version.image.as_ref().map(without_marks);
    if let Some(image) = &mut wanted {
        for name in without.iter().filter(|name| !image.contains_key(*name)) {
            say(&format!("--without {name}: the version has no such attribute"));
        }
        image.retain(|name, _| !without.contains(name));
    }
    let current = versions.last().and_then(|version| version.image.as_ref()).map(without_marks);
    if dry_run {
        show(&format!(
            "{}\n",
            wanted.as_ref().map_or_else(|| "null".to_owned(), json::item_to_string)
        ));
        return Ok(Exit::Done);
    }
    let item = current_item(place, key).await?;
    if item.as_ref().map(without_marks) != current {
        return Err(refused!(
            "refused: the item differs from its current version, so it was just changed; run the command again"
        ));
    }
    if wanted == current {
        say("the item already equals the version");
        return Ok(Exit::Done);
    }
    if let Some(image) = &wanted {
        check_expiry(place, image).await?;
    }
    // A missing item has no attributes, so the condition needs only one absent key attribute.
    let attribute = key.keys().next().map_or("", String::as_str);
    let unchanged = Unchanged::of(attribute, item.as_ref(), wanted.as_ref());
    let unchanged = unchanged.map_err(|attributes| {
        refused!(
            "refused: the item and the version have {attributes} attributes together, more than a condition can compare, so a concurrent change would go unnoticed; stop its writers, and put the item that `--dry-run` shows yourself"
        )
    })?;
    let written = match &wanted {
        Some(image) => put(place, image, unchanged).await?,
        None => delete(place, key, unchanged).await?,
    };
    // If the response to the write was lost, the SDK's retry fails although the write was applied.
    if !written && current_item(place, key).await?.as_ref().map(without_marks) != wanted {
        return Err(refused!(
            "refused: the item was changed concurrently; nothing was written; run the command again"
        ));
    }
    say(&format!("restored version {} of {}", version.number, rules::versions::history_key(key)));
    Ok(Exit::Done)
}

/// Refuses to restore an item whose time to live is in the past, because TTL would soon delete it.
async fn check_expiry(place: &Place, image: &Item) -> Result<()> {
    let Some(name) = ttl_attribute(&place.client, &place.table).await? else { return Ok(()) };
    match is_over(image.get(&name), place.now().await) {
        true => Err(refused!(
            "refused: the version's `{name}` is in the past, so TTL would soon delete the item again; add `--without {name}`, and set a new `{name}` afterwards if the item should expire"
        )),
        false => Ok(()),
    }
}

/// Returns true if TTL deletes an item with this value of the TTL attribute. TTL ignores values
/// that are not numbers, and times more than five years ago.
fn is_over(value: Option<&AttributeValue>, now: u64) -> bool {
    let Some(AttributeValue::N(number)) = value else { return false };
    let expiry = time_to_live::expiry_of(&number.to_string());
    expiry.is_some_and(|expiry| time_to_live::is_over(expiry, now))
}

async fn put(place: &Place, image: &Item, unchanged: Unchanged) -> Result<bool> {
    let request = place.client.put_item().table_name(&place.table);
    let request = request
        .set_item(Some(to_sdk_item(image)))
        .condition_expression(unchanged.expression)
        .set_expression_attribute_names(Some(unchanged.names))
        .set_expression_attribute_values(unchanged.values);
    was_applied(request.send().await).context(|| "cannot write the item")
}

async fn delete(place: &Place, key: &Item, unchanged: Unchanged) -> Result<bool> {
    let request = place.client.delete_item().table_name(&place.table);
    let request = request
        .set_key(Some(to_sdk_item(key)))
        .condition_expression(unchanged.expression)
        .set_expression_attribute_names(Some(unchanged.names))
        .set_expression_attribute_values(unchanged.values);
    was_applied(request.send().await).context(|| "cannot delete the item")
}

#[cfg(test)]
mod tests {
    use model::Number;
    use rules::Stamp;
    use rules::fan_out::{Mark, mark_attribute};
    use rules::migration::TOUCH;
    use rules::versions::VersionEvent;
    use tokio::net::TcpListener;

    use super::*;
    use crate::counters::testing::serve;
    use client::endpoint;
    use testing::store::TestStore;

    fn exit_of(ended: Result<Exit>) -> Exit {
        ended.unwrap_or_else(|failure| failure.exit())
    }

    #[tokio::test]
    async fn marks_are_neither_compared_nor_put_back() {
        let store = TestStore::open().await;
        store.table("films").await;
        let place = Place {
            client: store.client.clone(),
            endpoint: store.url.clone(),
            table: "films".to_owned(),
            history: "films-history".to_owned(),
        };
        let key = Item::new().with("p", "Rush");
        let film = |year: u64| key.clone().with("year", Number::from(year));
        let version = |number: u64, image: Item| Version {
            number,
            stamp: Stamp::lowest(),
            event: VersionEvent::Modify,
            image: Some(image),
            at_seconds: None,
            by_ttl: false,
            event_id: String::new(),
            expires_at: None,
            previous_fingerprint: None,
        };
        // An ended migration and the fan-out have marked the item of the earlier version. A running
        // migration has touched the current item.
        let origin = r#"{"S":"o"}"#.to_owned();
        let from = Mark { origin, stamp: Stamp::lowest(), hops: 1 }.text();
        let older = film(2013).with(TOUCH, "old").with(&mark_attribute("r"), from);
        let versions = [version(1, older), version(2, film(2014))];
        let stands = async |item: Item| {
            let put = place.client.put_item().table_name("films");
            put.set_item(Some(to_sdk_item(&item))).send().await.unwrap();
        };
        let restored = async |item: Item| {
            stands(item).await;
            let ended = run(&place, &key, &versions, &versions[0], &[], false).await;
            (exit_of(ended), current_item(&place, &key).await.unwrap())
        };
        let done = (Exit::Done, Some(film(2013)));
        assert_eq!(restored(film(2014).with(TOUCH, "new")).await, done);
        assert_eq!(restored(film(2014)).await, done);
        let other = film(2015).with(TOUCH, "new");
        assert_eq!(restored(other.clone()).await, (Exit::Refused, Some(other)));
        stands(film(2014).with(TOUCH, "new")).await;
        let same = run(&place, &key, &versions, &versions[1], &[], false).await;
        assert_eq!(same, Ok(Exit::Done));
        assert_eq!(current_item(&place, &key).await.unwrap(), Some(film(2014).with(TOUCH, "new")));
    }

    /// The response to the write was lost. The retry is refused, because the item has already
    /// changed.
    #[tokio::test]
    async fn a_restore_with_a_lost_answer_is_done() {
        let key = Item::new().with("p", "Rush");
        let film = |year: u64| key.clone().with("year", Number::from(year));
        let found = |year: u64| format!(r#"{{"Item":{}}}"#, json::item_to_string(&film(year)));
        let error = |name: &str| {
            format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{name}","message":"x"}}"#)
        };
        let (lost, changed) =
            (error("InternalServerError"), error("ConditionalCheckFailedException"));
        let ttl = r#"{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}"#;
        for (then, expected) in [(2013, Exit::Done), (2015, Exit::Refused)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let place = Place {
                client: endpoint::client(&url),
                endpoint: url,
                table: "films".to_owned(),
                history: "films-history".to_owned(),
            };
            let versions =
                [2013, 2014].map(|year| Version { number: year, ..Version::base(film(year)) });
            let (before, after) = (found(2014), found(then));
            let answers = [
                (200, before.as_str(), false),
                (200, ttl, false),
                (500, lost.as_str(), true),
                (400, changed.as_str(), false),
                (200, after.as_str(), false),
            ];
            let restoring = run(&place, &key, &versions, &versions[0], &[], false);
            let (_, restored) = tokio::join!(serve(listener, &answers), restoring);
            assert_eq!(exit_of(restored), expected, "{then}");
        }
    }

    #[tokio::test]
    async fn an_expired_version_is_restored_without_its_expiry() {
        let store = TestStore::open().await;
        store.table("films").await;
        store.expire_by("films", "until").await;
        let place = Place {
            client: store.client.clone(),
            endpoint: store.url.clone(),
            table: "films".to_owned(),
            history: "films-history".to_owned(),
        };
        let key = Item::new().with("p", "Rush");
        let now = u64::try_from(endpoint::store_seconds(&store.url, &store.client).await).unwrap();
        let until = |number: u64, at: u64| Version {
            number,
            ..Version::base(key.clone().with("until", Number::from(at)))
        };
        let gone = Version { number: 3, image: None, ..until(3, 0) };
        let versions = [until(1, now - 60), until(2, now + 3600), gone];
        let restored = async |version: usize, without: &[String]| {
            let exit = run(&place, &key, &versions, &versions[version], without, false).await;
            (exit_of(exit), current_item(&place, &key).await.unwrap())
        };
        assert_eq!(restored(0, &[]).await, (Exit::Refused, None));
        let whole = versions[1].image.clone();
        assert_eq!(restored(1, &[]).await, (Exit::Done, whole));
        let unchanged = Unchanged::of("p", versions[1].image.as_ref(), None).unwrap();
        delete(&place, &key, unchanged).await.unwrap();
        let key_less = run(&place, &key, &versions, &versions[0], &["p".to_owned()], false).await;
        assert!(
            key_less
                .unwrap_err()
                .to_string()
                .starts_with("--without p: an item cannot be restored without its key attribute")
        );
        assert_eq!(restored(0, &["until".to_owned()]).await, (Exit::Done, Some(key.clone())));
    }

    #[test]
    fn times_that_ttl_ignores_have_not_expired() {
        let now = 2_000_000_000;
        let number = |text: &str| AttributeValue::N(text.parse().unwrap());
        for (value, expected) in [
            (Some(number("1999999999")), true),
            (Some(number("1999999999.9")), true),
            (Some(number("2000000000")), false),
            (Some(number("1842320000")), true),
            (Some(number("1842319999")), false),
            (Some(number("-5")), false),
            (Some(number("1e60")), false),
            (Some(AttributeValue::from("1999999999")), false),
            (None, false),
        ] {
            assert_eq!(is_over(value.as_ref(), now), expected, "{value:?}");
        }
    }
}
