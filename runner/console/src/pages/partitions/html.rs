//! The HTML of the pages of partitions.

use maud::{Markup, html};
use serde_json::Value;

use super::heat::{self, Map};
use super::view::{Choice, HotKey, View};
use crate::context::{READ_ONLY, Writes};
use crate::load_history::{PERIOD, Partition, SAMPLES_MAX};
use crate::parts::preview::Preview;
use crate::parts::{form, message, table};
use crate::query::href;

/// The maximum number of partitions that the list shows. A table can have thousands.
const PARTITIONS_MAX: usize = 30;
/// The maximum number of characters of a hot key that are shown. A key can have 2,048 bytes.
const KEY_CHARACTERS_MAX: usize = 60;
/// The maximum length in bytes of a hot key that is a link. A longer link would take too much of
/// the page.
const LINK_BYTES_MAX: usize = 120;

const HEADINGS: [&str; 8] = [
    "Partition",
    "First token",
    "Share of tokens",
    "Items",
    "Bytes",
    "Read units/s",
    "Write units/s",
    "Shard",
];
const HOT_HEADINGS: [&str; 5] = ["Key", "Kind", "Partition", "Units/s", "At most too high by"];

/// Returns the HTML of the page on which the user selects a table.
pub(crate) fn choice_html(view: &Choice) -> Markup {
    let next = view.next.as_deref().map(|after| href(&["partitions"], &[("after", after)]));
    html! {
        h1 { "Partitions" }
        @if view.tables.is_empty() {
            (message::empty("The store has no table.", &html! { "Create a table, then reload this page." }))
        } @else {
            p { "Choose a table:" }
            ul {
                @for name in &view.tables { li { a href=(href(&["partitions", name], &[])) { (name) } } }
            }
        }
        (table::pager(None, next.as_deref()))
    }
}

/// Returns the HTML of the page of a table's partitions.
pub(crate) fn html(view: &View, writes: Writes<'_>) -> Markup {
    html! {
        h1 { "Partitions of " (view.table) }
        p { a href=(href(&["tables", &view.table], &[])) { "Items" } " · " a href="/partitions" { "Other tables" } }
        @if let Some(reason) = &view.unavailable {
            (message::empty("This store shows no partitions.", &html! { (reason) }))
        } @else {
            (heat::map(&map(view, "Writes", &view.hot_keys.writes), |sample| &sample.writes))
            (heat::map(&map(view, "Reads", &view.hot_keys.reads), |sample| &sample.reads))
            (message::note(&format!(
                "While this page is in use, the console reads the rates every {} seconds, and keeps them for {} minutes. A rate is the average over the last minute of the store's clock.",
                PERIOD.as_secs(),
                PERIOD.as_secs() * u64::try_from(SAMPLES_MAX).unwrap_or_default() / 60,
            )))
            (hot_keys(view))
            (partitions(view))
            (split(view, writes))
        }
    }
}

/// Returns the data of the map of one kind of load, which has these hot keys.
fn map<'v>(view: &'v View, name: &'static str, hot_keys: &'v [HotKey]) -> Map<'v> {
    let hotter =
        |one: &&HotKey, other: &&HotKey| one.units_per_second.total_cmp(&other.units_per_second);
    let hottest = hot_keys.iter().max_by(hotter);
    Map { name, samples: &view.samples, partitions: &view.partitions, hottest }
}

fn hot_keys(view: &View) -> Markup {
    let kinds = [("write", &view.hot_keys.writes), ("read", &view.hot_keys.reads)];
    let rows: Vec<Vec<Markup>> = kinds
        .into_iter()
        .flat_map(|(kind, keys)| keys.iter().map(move |hot| hot_key(&view.table, kind, hot)))
        .collect();
    html! {
        h2 { "Hot keys" }
        @if rows.is_empty() {
            (message::empty("No key had traffic in the last minute.", &html! { "Write or read items of the table." }))
        } @else {
            (table::table("Partition keys with the most traffic", &HOT_HEADINGS, &rows))
        }
    }
}

fn hot_key(table: &str, kind: &str, hot: &HotKey) -> Vec<Markup> {
    // A hot key is an object such as {"year":{"N":"2013"}}; the query builder takes only the string
    // `2013`.
    let value =
        hot.key.as_object().and_then(|key| key.values().next()?.as_object()?.values().next());
    let text = value.and_then(Value::as_str).unwrap_or_default();
    let Preview { text: shown, is_cut } = Preview::of_text(text, KEY_CHARACTERS_MAX);
    vec![
        html! {
            @if text.len() <= LINK_BYTES_MAX {
                a href=(href(&["tables", table], &[("pk", text)])) { (shown) @if is_cut { "…" } }
            } @else { (shown) "…" }
        },
        html! { (kind) },
        html! { (hot.partition) },
        html! { (format!("{:.1}", hot.units_per_second)) },
        html! { (format!("{:.1}", hot.error_per_second)) },
    ]
}

fn partitions(view: &View) -> Markup {
    let all = view.partitions.len();
    let first = view.first.min(all.saturating_sub(1));
    let rows: Vec<Vec<Markup>> =
        view.partitions.iter().skip(first).take(PARTITIONS_MAX).map(partition).collect();
    let address = |first: usize| {
        let first = if first == 0 { String::new() } else { first.to_string() };
        href(&["partitions", &view.table], &[("first", &first)])
    };
    let before = (first > 0).then(|| address(first.saturating_sub(PARTITIONS_MAX)));
    let after = (first + rows.len() < all).then(|| address(first + rows.len()));
    html! {
        h2 { "Partitions" }
        (table::table(&format!("{all} partitions, by their tokens"), &HEADINGS, &rows))
        (table::pager(before.as_deref(), after.as_deref()))
    }
}

fn partition(partition: &Partition) -> Vec<Markup> {
    vec![
        html! { (partition.number) @if partition.splitting { " " span.wait { "splitting" } } },
        html! { (partition.first_token) },
        html! { (share(partition)) },
        html! { (partition.items) },
        html! { (partition.bytes) },
        html! { (format!("{:.1}", partition.read_units_per_second)) },
        html! { (format!("{:.1}", partition.write_units_per_second)) },
        html! {
            @match &partition.shard {
                Some(shard) => (shard),
                None => span.absent { "none" },
            }
        },
    ]
}

/// Returns the percentage of all tokens that belong to a partition.
fn share(partition: &Partition) -> String {
    let Some((first, last)) = partition.tokens() else { return "–".to_owned() };
    let per_mille = u128::from(last.saturating_sub(first)) * 10_000 / u128::from(u64::MAX);
    format!("{}.{:02} %", per_mille / 100, per_mille % 100)
}

fn split(view: &View, writes: Writes<'_>) -> Markup {
    if matches!(writes, Writes::Refused) {
        return message::note(READ_ONLY);
    }
    let action = href(&["partitions", &view.table, "split"], &[]);
    html! {
        h2 { "Split" }
        form method="post" action=(action) {
            (form::hidden(writes, &href(&["partitions", &view.table], &[])))
            div.field {
                label for="partition" { "Partition" }
                input id="partition" name="partition" inputmode="numeric" placeholder="the largest";
            }
            div.field {
                label for="at" { "First token of the upper part" }
                input id="at" name="at" inputmode="numeric" placeholder="the middle of the partition";
            }
            button type="submit" { "Split" }
        }
        (message::note("A split closes the partition's shard and opens two. A split cannot be undone."))
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::HotKeys;
    use super::*;
    use crate::token::Token;

    fn view() -> View {
        View {
            schema: "s",
            table: "t&t".to_owned(),
            unavailable: None,
            partitions: Vec::new(),
            hot_keys: HotKeys::default(),
            samples: Vec::new(),
            first: 0,
            allow_writes: false,
        }
    }

    fn partitions(count: u32) -> Vec<Partition> {
        let of = |number: u32| Partition {
            number,
            first_token: "0".to_owned(),
            last_token: u64::MAX.to_string(),
            items: u64::MAX,
            bytes: u64::MAX,
            read_units_per_second: 12345.6,
            write_units_per_second: 12345.6,
            shard: Some("shardId-00000001234567890123-12345678".to_owned()),
            splitting: number == 7,
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn a_page_without_data_says_why() {
        let reason = "DynamoDB on AWS does not show its partitions.";
        let away = View { unavailable: Some(reason.to_owned()), ..view() };
        let away = html(&away, Writes::Refused).into_string();
        assert!(away.contains(reason) && !away.contains("<svg"), "{away}");
        let quiet = html(&view(), Writes::Refused).into_string();
        assert!(quiet.contains("No key had traffic") && quiet.contains("read-only"), "{quiet}");
        assert!(quiet.contains("Partitions of t&amp;t"), "{quiet}");
    }

    #[test]
    fn a_page_of_many_partitions_and_keys_stays_small() {
        let key = serde_json::json!({"p": {"S": "<\"".repeat(1_000)}});
        let hot = HotKey {
            key,
            token: "1".to_owned(),
            partition: 7,
            units_per_second: 1.0,
            error_per_second: 0.0,
        };
        let hot_keys = HotKeys { reads: vec![hot.clone(); 10], writes: vec![hot; 10] };
        let token = Token::random().unwrap();
        let view = View { partitions: partitions(3_000), hot_keys, first: 40, ..view() };
        let page = html(&view, Writes::Allowed(&token)).into_string();
        assert!(page.len() < 26_000, "{}", page.len());
        for part in
            ["3000 partitions", "100.00 %", "Back", "More", "action=\"/partitions/t%26t/split\""]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<\"<\""), "{page}");
    }
}
