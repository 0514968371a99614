//! Tests of the content and the maximum size of the page's HTML.

use model::json;

use super::*;
use crate::item_json::ItemJson;
use crate::pages::table::code::Code;
use crate::pages::table::request::Request;
use crate::pages::table::request::tests::{films, form};
use crate::pages::table::view::Capacity;

/// The maximum size of a page, minus an upper bound of the size of its frame.
const PAGE_BYTES_MAX: usize = 60 * 1024 - 4 * 1024;

fn view(query: &str, items: &[&str]) -> View {
    let (table, form) = (films(), form(query));
    let request = Request::of(&form, &table);
    let asked = request.as_ref().ok().map(|request| Asked {
        operation: request.operation,
        request: serde_json::from_str(&request.body()).unwrap(),
        code: Code::of(request),
    });
    let items = items.iter().map(|text| ItemJson(json::item_from_str(text).unwrap()));
    let items = Items {
        items: items.collect(),
        read: 7,
        capacity: Capacity { total: 3.5, ..Capacity::default() },
        next: None,
    };
    let result = asked.is_some().then_some(items);
    let problem = request.err();
    View { schema: "s", table, form, problem, asked, result, allow_writes: true }
}

#[test]
fn every_type_is_named_and_every_text_escaped() {
    let item = r#"{"year":{"N":"2013"},"ti'tle":{"S":"<script>alert(\"1\")</script>"},"<b>\"x":{"BOOL":true},
        "m":{"M":{"k":{"NULL":true}}},"l":{"L":[{"N":"1"}]},"b":{"B":"AAE="},"ss":{"SS":["p","q"]},
        "ns":{"NS":["1"]},"bs":{"BS":["AQ=="]},"n":{"NULL":true}}"#;
    let page = html(&view("", &[item])).into_string();
    for part in [
        "<i>N</i> <a href=\"/tables/films/item?key=",
        "<i>S</i> &lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;",
        "&lt;b&gt;&quot;x",
        "<i>BOOL</i> true",
        "<i>M</i> {&quot;k&quot;: null}",
        "<i>L</i> [1]",
        "<i>B</i> AAE=",
        "<i>SS</i> {&quot;p&quot;, &quot;q&quot;}",
        "<i>NS</i> {1}",
        "<i>BS</i> {AQ==}",
        "<i>NULL</i> null",
        "1 item returned, 7 read, 3.5 read capacity units",
        "<summary>JavaScript (SDK v3)</summary>",
        "href=\"/tables/films/items%2Ecsv\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("<script>") && !page.contains("style="), "{page}");
}

#[test]
fn the_form_keeps_what_was_typed_and_says_what_is_wrong() {
    let page =
        html(&view("pk=%22%3E%3Cx&filter=a&filter_op=size+%3C&filter_value=1", &[])).into_string();
    for part in [
        "value=\"&quot;&gt;&lt;x\"",
        "<option value=\"size &lt;\" selected>",
        "role=\"alert\">Partition key `year`: `&quot;&gt;&lt;x` is not a number; write instead: ",
        "Partition key year (N)",
        "ti'tle (S)",
        "by-two (a S, b N, c S)",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("The same request as code"), "{page}");
    let two = html(&view("index=by-two", &[])).into_string();
    assert!(two.contains("name=\"pk2\"") && !two.contains("name=\"pk3\""), "{two}");
}

#[test]
fn an_empty_result_says_what_to_do() {
    let next = |page: View| {
        let key =
            ItemJson(json::item_from_str(r#"{"year":{"N":"1"},"ti'tle":{"S":"a b"}}"#).unwrap());
        View { result: page.result.map(|items| Items { next: Some(key), ..items }), ..page }
    };
    for (view, part) in [
        (view("", &[]), "The table has no items."),
        (view("pk=1", &[]), "No item matches."),
        (next(view("filter=a", &[])), "No item that was read passes the filter."),
    ] {
        let page = html(&view).into_string();
        assert!(page.contains(part), "{part}\n{page}");
    }
    let page = html(&next(view("pk=1&column=40", &[]))).into_string();
    let address = "/tables/films?pk=1&amp;after=%7B%22ti%27tle%22%3A%7B%22S%22%3A%22a%20b%22%7D%2C%22year%22%3A%7B%22N%22%3A%221%22%7D%7D";
    assert!(page.contains(&format!("<a href=\"{address}\" rel=\"next\">Next page</a>")), "{page}");
}

/// Returns an item with many attributes; each value consists of `length` quotes, which are six
/// times longer in HTML.
fn wide(number: usize, attributes: usize, length: usize) -> String {
    let value = "\\\"".repeat(length);
    let members: Vec<String> =
        (0..attributes).map(|at| format!("\"attribute-{at:04}\":{{\"S\":\"{value}\"}}")).collect();
    format!("{{\"year\":{{\"N\":\"{number}\"}},\"ti'tle\":{{\"S\":\"t\"}},{}}}", members.join(","))
}

#[test]
fn a_page_stays_below_its_size_whatever_the_items_are() {
    let big = format!(
        r#"{{"year":{{"N":"1"}},"ti'tle":{{"S":"t"}},"text":{{"S":"{}"}}}}"#,
        "x".repeat(400_000)
    );
    let cases = [
        ("a big item", vec![big; 2], "", "aria-label=\"Whole item\""),
        ("wide items", (0..25).map(|number| wide(number, 1_000, 300)).collect(), "", "of 1002"),
        ("the last columns", vec![wide(1, 1_000, 3)], "column=990", "attribute-0999"),
        (
            "a hundred items",
            (0..100).map(|number| wide(number, 60, 40)).collect(),
            "limit=100",
            "Columns 1 to",
        ),
    ];
    for (case, items, query, part) in cases {
        let items: Vec<&str> = items.iter().map(String::as_str).collect();
        let page = html(&view(query, &items)).into_string();
        assert!(page.len() < PAGE_BYTES_MAX, "{case}: {}", page.len());
        assert!(page.contains(part), "{case}: {part}");
    }
    let long = format!("filter=a&filter_value={}", "%22".repeat(3_000));
    let page = html(&view(&long, &[&wide(1, 10, 10)])).into_string();
    assert!(
        page.len() < 2 * PAGE_BYTES_MAX && page.contains("too long for this page"),
        "{}",
        page.len()
    );
}

#[test]
fn the_other_columns_are_reachable() {
    let item = wide(1, 100, 1);
    let page = html(&view("column=40", &[&item])).into_string();
    for part in [
        "Columns 41 to 80 of 102",
        "<a href=\"/tables/films\">Columns before</a>",
        "<a href=\"/tables/films?column=80\">Columns after</a>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
}
