//! Tests of the console's pages of tables, items, partitions and the ring, requested by a browser
//! and by a program.

use std::time::Duration;

use serde_json::{Value, json};

use crate::console::{Console, encoded};
use crate::process::{LocalStore, Process, Up, binary, wait_for};
use crate::wire::Endpoint;

/// Sends an action as a program does, and returns the status and the JSON.
fn act(console: &Console, path: &str, fields: &[(&str, &str)]) -> (u16, Value) {
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    let body = pairs.collect::<Vec<_>>().join("&");
    let response = console.request("POST", &format!("{path}.json"), &[], &body);
    (response.status, serde_json::from_str(&response.body).unwrap())
}

fn item_path(table: &str, key: &Value) -> String {
    format!("/tables/{table}/item?key={}", encoded(&key.to_string()))
}

fn item_twin(console: &Console, table: &str, key: &Value) -> Value {
    console.twin(&item_path(table, key))["found"].clone()
}

fn create_films(store: &Endpoint, name: &str) {
    store.ok(
        "CreateTable",
        &json!({
            "TableName": name, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                {"AttributeName": "year", "AttributeType": "N"},
                {"AttributeName": "title", "AttributeType": "S"},
                {"AttributeName": "genre", "AttributeType": "S"},
            ],
            "KeySchema": [
                {"AttributeName": "year", "KeyType": "HASH"},
                {"AttributeName": "title", "KeyType": "RANGE"},
            ],
            "GlobalSecondaryIndexes": [{
                "IndexName": "by-genre",
                "KeySchema": [{"AttributeName": "genre", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
            }],
            "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "KEYS_ONLY"},
        }),
    );
}

fn film(year: u32, title: &str, genre: &str, rating: &str) -> Value {
    json!({
        "year": {"N": year.to_string()}, "title": {"S": title}, "genre": {"S": genre},
        "info": {"M": {"rating": {"N": rating}, "actors": {"SS": ["A", "B"]}}},
    })
}

/// Returns the titles that a query string of `films` finds.
fn titles(console: &Console, query: &str) -> Vec<String> {
    let twin = console.twin(&format!("/tables/films?{query}"));
    assert_eq!(twin["problem"], Value::Null, "{query}");
    let items = twin["result"]["items"].as_array().unwrap();
    items.iter().map(|item| item["title"]["S"].as_str().unwrap().to_owned()).collect()
}

/// Goal: the pages of tables show and change tables and items. All cases share one `weir up`.
#[test]
fn the_console_shows_and_changes_tables() {
    let up = Up::start(&[]);
    let console = Console::of(up.folder.path());
    create_films(&up.store, "films");
    for (year, title, genre, rating) in [
        (2013, "Rush", "race", "8.1"),
        (2013, "Gravity", "space", "7.7"),
        (2014, "Lucy", "race", "6.4"),
    ] {
        let item = film(year, title, genre, rating);
        up.store.ok("PutItem", &json!({"TableName": "films", "Item": item}));
    }
    query(&console);
    exports(&console);
    wrong_input(&console);
    odd_items(&up, &console);
    changes(&up, &console);
    partitions_and_ring(&up, &console);
    deleted_table(&up, &console);
}

fn query(console: &Console) {
    let tables = console.twin("/tables");
    let films = tables["tables"].as_array().unwrap().iter().find(|table| table["name"] == "films");
    let films = films.unwrap();
    assert_eq!((&films["stream"], &films["ttl"]), (&json!("KEYS_ONLY"), &Value::Null));
    assert_eq!(films["indexes"][0]["name"], "by-genre");
    let page = console.page("/tables");
    assert!(page.contains("<a href=\"/tables/films\">films</a>"), "{page}");

    for (query, expected) in [
        ("pk=2013", &["Gravity", "Rush"][..]),
        ("pk=2013&order=desc", &["Rush", "Gravity"]),
        ("pk=2013&sk_op=begins_with&sk=R", &["Rush"]),
        ("pk=2013&sk_op=%3E&sk=H", &["Rush"]),
        ("pk=2013&sk_op=%3E%3D&sk=Gravity", &["Gravity", "Rush"]),
        ("pk=2013&sk_op=%3C&sk=H", &["Gravity"]),
        ("pk=2013&sk_op=%3C%3D&sk=Gravity", &["Gravity"]),
        ("pk=2013&sk_op=%3D&sk=Rush", &["Rush"]),
        ("pk=2013&sk_op=between&sk=A&sk_to=H", &["Gravity"]),
        ("pk=2013&filter=info.rating&filter_type=N&filter_op=%3E&filter_value=8", &["Rush"]),
        ("pk=2013&filter=info.actors&filter_op=contains&filter_value=B", &["Gravity", "Rush"]),
        ("pk=2013&filter=info&filter_op=attribute_type&filter_type=M", &["Gravity", "Rush"]),
        ("pk=2013&filter=genre&filter_op=size+%3D&filter_value=4", &["Rush"]),
        ("pk=2013&filter=genre&filter_op=in&filter_value=race,none", &["Rush"]),
        ("pk=2013&filter=none&filter_op=attribute_exists", &[]),
        ("pk=2013&project=title&limit=1", &["Gravity"]),
    ] {
        assert_eq!(titles(console, query), expected, "{query}");
    }
    let mut found = titles(console, "index=by-genre&pk=race");
    found.sort();
    assert_eq!(found, ["Lucy", "Rush"]);

    let twin = console.twin("/tables/films?pk=2013&filter=genre&filter_value=space&limit=2");
    assert_eq!(
        (&twin["result"]["read"], &twin["asked"]["operation"]),
        (&json!(2), &json!("Query"))
    );
    assert!(twin["result"]["capacity"]["total"].as_f64().unwrap() > 0.0, "{twin}");
    let page = console.page("/tables/films?pk=2013&limit=1");
    let (_, rest) = page
        .split_once("rel=\"next\">Next page")
        .map(|(before, _)| before.rsplit_once("href=\"").unwrap())
        .unwrap();
    let next = rest.split('"').next().unwrap().replace("&amp;", "&");
    let page = console.page(&next);
    assert!(page.contains("<i>S</i> Rush") && !page.contains("<i>S</i> Gravity"), "{page}");
    assert!(page.contains("First page") && page.contains("AWS CLI"), "{page}");
}

fn exports(console: &Console) {
    let lines =
        console.request("GET", "/tables/films/items.jsonl?pk=2013&project=title,year", &[], "");
    assert!(
        lines.head.contains("content-disposition: attachment; filename=\"films.jsonl\""),
        "{}",
        lines.head
    );
    assert_eq!(
        lines.body,
        "{\"Item\":{\"title\":{\"S\":\"Gravity\"},\"year\":{\"N\":\"2013\"}}}\n{\"Item\":{\"title\":{\"S\":\"Rush\"},\"year\":{\"N\":\"2013\"}}}\n"
    );
    let csv =
        console.request("GET", "/tables/films/items%2Ecsv?pk=2013&project=title,year", &[], "");
    assert_eq!(csv.body, "year,title\n2013,Gravity\n2013,Rush\n");
}

fn wrong_input(console: &Console) {
    for (path, status, part) in [
        ("/tables/films?pk=abc", 200, "`abc` is not a number"),
        (
            "/tables/films?pk=2013&filter=title&filter_value=x",
            200,
            "Filter Expression can only contain non-primary key attributes",
        ),
        ("/tables/films/items.csv?pk=abc", 400, "`abc` is not a number"),
        ("/tables/none", 404, "table `none` does not exist"),
        ("/tables/none/item?key=%7B%7D", 404, "table `none` does not exist"),
        ("/tables/a%2F..%2Fclock", 400, "is not a table name"),
        ("/partitions/..%2Fclock", 400, "is not a table name"),
        ("/partitions/none", 404, "table `none` does not exist"),
        (
            "/tables/films/item?key=%7B%22year%22:1%7D",
            400,
            "{&quot;year&quot;:{&quot;N&quot;:&quot;…&quot;},&quot;title&quot;",
        ),
        (
            "/tables/films/item?key=%7B%22year%22:%7B%22N%22:%221%22%7D,%22title%22:%7B%22S%22:%22%3Cb%3E%22%7D%7D",
            404,
            "&lt;b&gt;",
        ),
    ] {
        let response = console.request("GET", path, &[], "");
        assert_eq!(response.status, status, "{path}: {}", response.body);
        assert!(response.body.contains(part), "{path}: {part}\n{}", response.body);
    }
}

/// Checks items with quotes and tags in names, a name that ends like the URL of a page's JSON
/// version, a thousand attributes, and 400 KB.
fn odd_items(up: &Up, console: &Console) {
    let odd = "a.b_c-d.json";
    up.store.create_table(odd);
    let (name, text) =
        ("it's \"<script>alert(1)</script>\" & more", "<img src=x onerror=alert(1)>'\"");
    let mut wide = json!({"p": {"S": "wide"}});
    for number in 0..1_000 {
        wide[format!("attribute {number:04}")] = json!({"N": number.to_string()});
    }
    let big = json!({"p": {"S": "big"}, "text": {"S": "\"".repeat(409_000)}});
    let item = json!({"p": {"S": text}, name: {"S": text}, "b": {"B": "AAH/"}});
    for item in [&item, &wide, &big] {
        up.store.ok("PutItem", &json!({"TableName": odd, "Item": item}));
    }
    let path = "/tables/a%2Eb_c-d%2Ejson";
    let page = console.page(path);
    assert!(
        page.contains("&lt;img src=x onerror=alert(1)&gt;") && page.contains("Columns after"),
        "{page}"
    );
    let twin = console.twin(path);
    assert_eq!(
        (&twin["table"]["name"], twin["result"]["items"].as_array().unwrap().len()),
        (&json!(odd), 3)
    );
    let filter = format!("{path}?filter={}&filter_value={}", encoded(name), encoded(text));
    let page = console.page(&filter);
    assert!(page.contains("1 item returned, 3 read"), "{page}");
    // The filtered page shows this attribute. Without the filter, the thousand attributes of
    // another item precede it.
    assert!(
        page.contains("it's &quot;&lt;script&gt;alert(1)&lt;/script&gt;&quot; &amp; more"),
        "{page}"
    );

    for (key, parts) in [
        (json!({"p": {"S": text}}), ["&lt;img src=x", "AAH/"]),
        (json!({"p": {"S": "wide"}}), ["More attributes", "attribute 0000"]),
        (
            json!({"p": {"S": "big"}}),
            ["truncated; the JSON has the complete value", "too large for a form"],
        ),
    ] {
        let page = console.page(&item_path("a%2Eb_c-d%2Ejson", &key));
        for part in parts {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }
    let key = json!({"p": {"S": "big"}});
    let found = item_twin(console, "a%2Eb_c-d%2Ejson", &key);
    assert_eq!(found["item"], big);
    // The item is too large for the form of the page. A program sends it.
    let mut edited = big.clone();
    edited["more"] = json!({"BOOL": true});
    let token = console.token(&format!("{path}/item"));
    let (key, item) = (key.to_string(), edited.to_string());
    let read = found["read"].as_str().unwrap();
    let fields = [("token", token.as_str()), ("key", &key), ("read", read), ("item", &item)];
    let (status, answer) = act(console, &format!("{path}/item/save"), &fields);
    assert_eq!((status, &answer["done"]), (200, &json!("saved 1 attribute")), "{answer}");
}

fn changes(up: &Up, console: &Console) {
    let key = json!({"year": {"N": "2013"}, "title": {"S": "Rush"}});
    let token = console.token(&item_path("films", &key));
    let found = item_twin(console, "films", &key);
    let read = found["read"].as_str().unwrap();
    let mut edited = found["item"].clone();
    edited["note"] = json!({"S": "it's <b>"});
    edited.as_object_mut().unwrap().remove("info");
    let edited_text = edited.to_string();
    let key_text = key.to_string();
    let save = |token: &str, read: &str, item: &str| {
        let fields = [("token", token), ("key", &key_text), ("read", read), ("item", item)];
        act(console, "/tables/films/item/save", &fields)
    };
    let item = |key: &Value| {
        up.store.ok("GetItem", &json!({"TableName": "films", "Key": key}))["Item"].clone()
    };

    let (status, answer) = save("0000", read, &edited_text);
    assert_eq!((status, &answer["error"]), (403, &json!("Refused")));
    let (status, answer) = save(&token, read, "{\n\"year\": {\"N\": 2013}}");
    assert_eq!(status, 400);
    let said = "line 2: `year`: NUMBER_VALUE cannot be converted to String; write instead: {\"N\":\"2013\"}";
    assert_eq!(answer["message"], said);
    let (status, answer) = save(&token, read, &edited_text.replace("Rush", "Other"));
    assert_eq!(
        (status, answer["message"].as_str().unwrap().contains("cannot be changed")),
        (400, true)
    );
    assert_eq!(item(&key), found["item"], "nothing was written yet");

    let (status, _) = save(&token, read, &edited_text);
    assert_eq!((status, item(&key)), (200, edited.clone()));
    // This test, as another client, changed the item after the page was read.
    let (status, answer) = save(&token, read, &edited_text);
    assert_eq!((status, &answer["error"]), (409, &json!("Conflict")), "{answer}");

    let other = json!({"year": {"N": "2015"}, "title": {"S": "New"}});
    let create = [("token", token.as_str()), ("item", &other.to_string())];
    assert_eq!(act(console, "/tables/films/item/create", &create).0, 200);
    assert_eq!(item(&other), other);
    let (status, answer) = act(console, "/tables/films/item/create", &create);
    assert_eq!((status, &answer["error"]), (409, &json!("Conflict")));

    let read = item_twin(console, "films", &other)["read"].as_str().unwrap().to_owned();
    let update = json!({
        "TableName": "films", "Key": other, "UpdateExpression": "SET a = :a",
        "ExpressionAttributeValues": {":a": {"S": "x"}},
    });
    up.store.ok("UpdateItem", &update);
    let delete = |read: &str| {
        let fields = [("token", token.as_str()), ("key", &other.to_string()), ("read", read)];
        act(console, "/tables/films/item/delete", &fields).0
    };
    assert_eq!(delete(&read), 409);
    let read = item_twin(console, "films", &other)["read"].as_str().unwrap().to_owned();
    assert_eq!((delete(&read), item(&other)), (200, Value::Null));

    // A browser is redirected to the page.
    let body = format!("token={token}&item={}&back=%2Ftables%2Ffilms", encoded(&other.to_string()));
    let response = console.request("POST", "/tables/films/item/create", &[], &body);
    assert_eq!(response.status, 303, "{}", response.body);
    assert!(response.head.contains("location: /tables/films"), "{}", response.head);
}

fn partitions_and_ring(up: &Up, console: &Console) {
    for number in 0..200 {
        let item = film(3000, &format!("hot {number}"), "g", "1");
        up.store.ok("PutItem", &json!({"TableName": "films", "Item": item}));
    }
    let before = console.twin("/partitions/films");
    let count = before["partitions"].as_array().unwrap().len();
    assert_eq!(before["samples"].as_array().unwrap().len(), 1);
    let page = console.page("/partitions/films");
    assert!(
        page.contains("<svg class=\"heat\"") && page.contains("/partitions/films/split"),
        "{page}"
    );
    let token = console.token("/partitions/films");
    let wrong = [("token", token.as_str()), ("partition", "x")];
    assert_eq!(act(console, "/partitions/films/split", &wrong).0, 400);
    let largest = [("token", token.as_str()), ("partition", "0"), ("at", "1000")];
    let (status, answer) = act(console, "/partitions/films/split", &largest);
    assert_eq!(status, 200, "{answer}");
    let after = console.twin("/partitions/films");
    assert_eq!(after["partitions"].as_array().unwrap().len(), count + 1);
    assert!(console.page("/partitions").contains("/partitions/films"));
    // The console samples the table every 15 s, and the heat map shows a dashed line for the split.
    let split = wait_for("a sample after the split", Duration::from_secs(60), || {
        let page = console.page("/partitions/films");
        page.contains(&format!("{count} partitions became {}", count + 1)).then_some(page)
    });
    assert!(split.contains("class=\"split\""), "{split}");

    let ring = console.twin("/ring");
    assert_eq!(ring["nodes"].as_array().unwrap().len(), 3);
    let roles: Vec<&str> = ring["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles.iter().filter(|role| **role == "leader").count(), 1, "{roles:?}");
    let page = console.page("/ring");
    assert!(page.contains("<title>Arc 0, node 1: "), "{page}");
}

fn deleted_table(up: &Up, console: &Console) {
    let key = json!({"year": {"N": "2013"}, "title": {"S": "Rush"}});
    let token = console.token(&item_path("films", &key));
    let read = item_twin(console, "films", &key)["read"].as_str().unwrap().to_owned();
    up.store.ok("DeleteTable", &json!({"TableName": "films"}));
    for path in
        ["/tables/films", "/tables/films?pk=2013", "/partitions/films", &item_path("films", &key)]
    {
        let response = console.request("GET", path, &[], "");
        assert_eq!(response.status, 404, "{path}");
        assert!(
            response.body.contains("table `films` does not exist"),
            "{path}: {}",
            response.body
        );
    }
    let fields = [("token", token.as_str()), ("key", &key.to_string()), ("read", &read)];
    let (status, answer) = act(console, "/tables/films/item/delete", &fields);
    assert_eq!((status, &answer["error"]), (404, &json!("NotFound")));
    assert!(!console.page("/tables").contains(">films<"));
}

/// Goal: `weir console` on another program's store only reads, and continues after the store was
/// stopped and restarted.
#[test]
fn a_console_of_another_store_only_reads_and_survives_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = LocalStore::start(folder.path());
    create_films(&store.endpoint, "films");
    let item = film(2013, "Rush", "race", "8");
    store.endpoint.ok("PutItem", &json!({"TableName": "films", "Item": item}));
    let url = format!("http://{}", store.endpoint.address());
    let mut command = binary("weir");
    command.args(["console", "--port", "0", "--endpoint", &url]).current_dir(folder.path());
    let process = Process::start(command, folder.path().join("console.log"));
    let address = wait_for("the console to listen", Duration::from_secs(60), || {
        let log = process.log();
        let (_, behind) = log.split_once("http://")?;
        behind.split_whitespace().next().map(|address| format!("http://{address}"))
    });
    let console = Console::at(&address);
    let key = json!({"year": {"N": "2013"}, "title": {"S": "Rush"}});
    let page = console.page(&item_path("films", &key));
    assert!(page.contains("read-only") && !page.contains("name=\"token\""), "{page}");
    let (status, answer) = act(&console, "/tables/films/item/create", &[("item", "{}")]);
    assert_eq!((status, &answer["error"]), (403, &json!("Refused")));

    let port = store.endpoint.address().rsplit(':').next().unwrap().to_owned();
    store.process.kill();
    for path in ["/tables", "/tables/films?pk=2013", "/tables/films/items.csv", "/ring"] {
        let response = console.request("GET", path, &[], "");
        assert_eq!(response.status, 502, "{path}");
        assert!(response.body.contains("does not answer"), "{path}: {}", response.body);
    }
    let mut command = binary("local-store");
    command.args(["--port", &port, "--data"]).arg(folder.path().join("data"));
    let _again = Process::start(command, folder.path().join("again.log"));
    let page = wait_for("the store to be back", Duration::from_secs(120), || {
        let response = console.request("GET", "/tables/films?pk=2013", &[], "");
        (response.status == 200).then_some(response.body)
    });
    assert!(page.contains("Rush"), "{page}");
}
