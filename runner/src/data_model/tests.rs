//! Checks every model in `runner/design/testdata/models` on a store, and compares the report with
//! the expected report next to the model. `UPDATE=1` rewrites the expected reports.

use std::fs;
use std::path::{Path, PathBuf};

use design::data_model::Table;
use design::estimate::estimate;
use design::findings::Owner;
use design::report::Report;
use design::{Prices, findings};
use testing::store::TestStore;

use super::check::{prepare, try_patterns};
use super::scratch_store::ScratchStore;
use super::{ModelFile, export, read};
use client::exit::Exit;

fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("design/testdata/models");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end != "txt")).collect();
    paths.sort();
    paths
}

/// Reads a model of the test data. Messages name the file without its folder.
fn model(path: &Path) -> ModelFile {
    let file = read(path).unwrap().unwrap();
    ModelFile { name: path.file_name().unwrap().to_str().unwrap().to_owned(), ..file }
}

#[tokio::test]
async fn models_have_their_expected_reports() {
    let prices = Prices::own().unwrap();
    for path in models() {
        let file = model(&path);
        let store = ScratchStore::open().await.unwrap();
        assert_eq!(prepare(&store, &file).await, None, "{}", path.display());
        let trial = try_patterns(&store, &file.model).await;
        let estimate = estimate(&file.model, &trial, &prices);
        let source = (file.name.as_str(), file.text.as_str());
        let found = findings::find(source, &file.model, &trial, (&estimate, &prices));
        let report = Report {
            model: &file.model,
            trial: &trial,
            estimate: &estimate,
            findings: &found,
            prices: &prices,
        };
        let (text, expected) = (report.text(), path.with_extension("txt"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&expected, text).unwrap();
            continue;
        }
        assert_eq!(text, fs::read_to_string(&expected).unwrap_or_default(), "{}", path.display());
    }
}

#[test]
fn each_finding_is_in_a_model_of_the_test_data() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("design/testdata/models");
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "txt") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    let mut absent = [Owner::Pattern.checks(), Owner::Table.checks()].concat();
    absent.retain(|check| !all.contains(&format!("[{check}]")));
    assert!(absent.is_empty(), "no model has {absent:?}");
}

#[tokio::test]
async fn what_the_store_refuses_has_its_place() {
    let text = "tables: [{TableName: abc, BillingMode: PAY_PER_REQUEST, AttributeDefinitions: [{AttributeName: pk, AttributeType: S}], KeySchema: [{AttributeName: pk, KeyType: HASH}]}]\nitems:\n  abc:\n    - {PutRequest: {Item: {pk: {S: a}}}}\n    - {PutRequest: {Item: {pk: {S: ''}}}}\naccess_patterns: []\n";
    let model = design::read("refused.yaml", text).unwrap();
    let file = ModelFile { name: "refused.yaml".to_owned(), text: text.to_owned(), model };
    let store = ScratchStore::open().await.unwrap();
    let refused = prepare(&store, &file).await.unwrap().to_string();
    assert!(refused.contains("--> refused.yaml:5:"), "{refused}");
    assert!(refused.contains("the local store rejects PutItem: "), "{refused}");
}

/// Returns tables whose attribute definitions are sorted by name, because their order has no
/// meaning.
fn by_attribute(mut tables: Vec<Table>) -> Vec<Table> {
    for table in &mut tables {
        table
            .attribute_definitions
            .sort_by(|one, other| one.attribute_name.cmp(&other.attribute_name));
    }
    tables
}

/// Goal: if the tables of a model are created in a store, the export of the store is the same
/// model.
#[tokio::test]
async fn an_export_of_tables_is_their_model() {
    for path in models() {
        let file = model(&path);
        let served = TestStore::open().await;
        for (_, request) in design::trial::preparation(&file.model) {
            let target = format!("DynamoDB_20120810.{}", request.operation);
            let body = request.parameters.to_string();
            let answer = server::api::handle(&served.store, &target, body.as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        let found = export::export(&served.client, &[], 100).await.unwrap();
        assert_eq!(found.left_out, 0);
        let found = design::read("export.json", &found.text).unwrap();
        assert_eq!(by_attribute(found.tables), by_attribute(file.model.tables));
        for (table, items) in &file.model.items {
            let mut exported = found.items[table].clone();
            assert_eq!(exported.len(), items.len(), "{table}");
            exported.retain(|item| !items.contains(item));
            assert!(exported.is_empty(), "{table}: {exported:?}");
        }
        let unknown = export::export(&served.client, &["missing".to_owned()], 1).await;
        let message = unknown.map(drop).unwrap_err().to_string();
        assert!(message.contains("cannot read table `missing`"), "{message}");
    }
}

/// Goal: if the items are too large for a model file, the export omits the largest item.
#[tokio::test]
async fn an_export_of_large_items_can_be_read() {
    let served = TestStore::open().await;
    let table = r#"{"TableName":"large","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}"#;
    let put = |name: &str, bytes: usize| {
        let text = "x".repeat(bytes);
        format!(
            r#"{{"TableName":"large","Item":{{"pk":{{"S":"{name}"}},"text":{{"S":"{text}"}}}}}}"#
        )
    };
    let requests = [
        ("CreateTable", table.to_owned()),
        ("PutItem", put("a", 200_000)),
        ("PutItem", put("b", 300_000)),
        ("PutItem", put("c", 200_000)),
        ("PutItem", put("d", 299_700)),
    ];
    for (operation, body) in requests {
        let target = format!("DynamoDB_20120810.{operation}");
        let answer = server::api::handle(&served.store, &target, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let found = export::export(&served.client, &[], 5).await.unwrap();
    assert!(found.text.len() <= design::FILE_BYTES_MAX, "{}", found.text.len());
    let model = design::read("export.json", &found.text).unwrap();
    let names = model.items["large"].iter().filter_map(|item| item.get("pk"));
    let names: std::collections::BTreeSet<String> = names.map(|name| format!("{name:?}")).collect();
    assert_eq!((names.len(), found.left_out), (3, 1), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("\"b\"")), "{names:?}");
}

#[test]
fn a_file_with_mistakes_fails() {
    let diagnostics = design::read("empty.json", "{}").unwrap_err();
    assert_eq!(super::refuse(&diagnostics, client::output::Output::Json), Exit::Failed);
}
