//! Tests of complete models: mistakes, templates, estimates, and invalid model files.

use std::fs;
use std::path::{Path, PathBuf};

use model::Item;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::command::Command;
use crate::data_model::{AccessPattern, Index};
use crate::estimate::{Estimate, estimate};
use crate::trial::{Outcome, Run};
use crate::{DataModel, Prices, findings, read, report, sam, trial};

const BASE: &str = include_str!("../testdata/base.yaml");
const MODELS: [&str; 3] = [
    BASE,
    include_str!("../testdata/models/shop.yaml"),
    include_str!("../testdata/models/operations.yaml"),
];

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn compare(found: &str, file: &Path) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(file, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    assert_eq!(found, expected, "{} (UPDATE=1 rewrites it)", file.display());
}

/// Goal: each mistake is reported with its position and its correction. Each case replaces the
/// lines with `-` in `base.yaml` by the lines with `+`; the expected output follows.
#[test]
fn each_mistake_has_its_place_and_its_remedy() {
    let file = testdata("mistakes.txt");
    let text = fs::read_to_string(&file).unwrap();
    let mut found = String::new();
    for case in text.split("# ").filter(|case| !case.trim().is_empty()) {
        let lines = |mark: char| {
            let lines = case.lines().filter_map(|line| line.strip_prefix(mark)?.strip_prefix(' '));
            lines.collect::<Vec<_>>().join("\n")
        };
        let (from, to) = (lines('-'), lines('+'));
        assert!(BASE.contains(&from), "`{from}` is not in base.yaml");
        let changed = if from.is_empty() { BASE.to_owned() } else { BASE.replacen(&from, &to, 1) };
        let result = match read("base.yaml", &changed) {
            Ok(model) => format!("a model of {} tables", model.tables.len()),
            Err(diagnostics) => diagnostics.to_string(),
        };
        let shown = |mark: &str, text: &str| -> String {
            match from.is_empty() {
                true => String::new(),
                false => text.split('\n').map(|line| format!("{mark} {line}\n")).collect(),
            }
        };
        let name = case.lines().next().unwrap_or_default();
        let indented: String =
            result.lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect();
        found.push_str(&format!(
            "# {name}\n{}{}\n{indented}\n",
            shown("-", &from),
            shown("+", &to)
        ));
    }
    compare(&found, &file);
}

#[test]
fn json_and_yaml_of_the_same_content_are_the_same_model() {
    let yaml = read("base.yaml", BASE).unwrap();
    // A serialized model can be parsed again; it does not contain the parsed commands.
    let written = serde_json::to_string_pretty(&yaml.to_json()).unwrap();
    let again = read("base.json", &written).unwrap();
    assert_eq!(again.tables, yaml.tables);
    assert_eq!(again.items, yaml.items);
    assert_eq!(again.workload, yaml.workload);
    assert_eq!(yaml.patterns.len(), 3);
    let command = yaml.patterns[1].command.as_ref().unwrap();
    assert_eq!(command.index(), Some("by-status"));
    assert_eq!(yaml.patterns[1].rates(), Some((10.0, 50.0)));
}

/// Returns a string value within this number of nested lists.
fn nested(levels: usize) -> String {
    format!("{}{{S: x}}{}", "{L: [".repeat(levels), "]}".repeat(levels))
}

#[test]
fn an_item_may_be_nested_as_deeply_as_dynamodb_allows() {
    let with = |levels: usize| read("base.yaml", &BASE.replace("{SS: [a, b]}", &nested(levels)));
    // The string within the lists counts as a level of nesting.
    assert_eq!(with(31).unwrap().items["orders"].len(), 1);
    let message = with(32).unwrap_err().to_string();
    assert!(message.contains("invalid value: Nesting Levels have exceeded"), "{message}");
    let message = with(100).unwrap_err().to_string();
    assert!(message.contains("deeper than 80 levels"), "{message}");
}

#[test]
fn a_file_that_is_too_large_says_how_to_export_less() {
    let text = format!("{BASE}# {}", "x".repeat(crate::FILE_BYTES_MAX));
    let message = read("large.yaml", &text).unwrap_err().to_string();
    assert!(message.contains("at most 1000000 are allowed"), "{message}");
    assert!(message.contains("export with fewer `--samples`"), "{message}");
}

#[test]
fn a_template_has_the_tables_of_the_model() {
    // CloudFormation rejects a property without a value.
    let tagged = BASE.replace("PAY_PER_REQUEST\n", "PAY_PER_REQUEST\n    Tags: []\n");
    let model = read("base.yaml", &tagged).unwrap();
    let template = sam::template(&model, "base.yaml");
    compare(&template, &testdata("template.txt"));
    let stack = template::read("template.yaml", &template, &template::Context::default()).unwrap();
    assert_eq!(stack.tables.len(), 1);
    assert!(stack.warnings.is_empty(), "{:?}", stack.warnings);
}

/// Returns the outcomes of the patterns of `base.yaml` with these responses.
fn outcomes(model: &DataModel, responses: &[Option<Value>]) -> Vec<Option<Outcome>> {
    let patterns = model.patterns.iter().zip(responses);
    patterns
        .map(|(pattern, response)| {
            let mut run = Run::new(pattern.command.as_ref()?);
            run.take(true, &response.as_ref()?.to_string());
            Some(run.outcome())
        })
        .collect()
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-6 * expected.abs().max(1.0)
}

/// Ten queries per second of 20 items of 600 bytes: 12,000 bytes are 3 read units of 4 KB, or 1.5
/// read units if eventually consistent.
#[test]
fn rates_and_sizes_become_units_and_prices() {
    let text = BASE.replace(
        "    peak_per_second: 50\n",
        "    peak_per_second: 50\n    items_per_request: 20\n",
    );
    let text = text
        .replace("{ProjectionType: INCLUDE, NonKeyAttributes: [total]}", "{ProjectionType: ALL}");
    let model = read("base.yaml", &text).unwrap();
    let capacity = json!([{"TableName": "orders", "CapacityUnits": 0.5,
        "GlobalSecondaryIndexes": {"by-status": {"CapacityUnits": 0.5}}}]);
    let response =
        json!({"Items": [{}], "Count": 1, "ScannedCount": 1, "ConsumedCapacity": capacity[0]});
    let trial = outcomes(&model, &[None, Some(response), None]);
    let prices = Prices::own().unwrap();
    let Estimate { tables, on_demand_dollars, .. } = estimate(&model, &trial, &prices);
    let [table, index] = tables[0].parts.as_slice() else { panic!("{tables:?}") };
    // The index contains all attributes, so its entries have the size of the items.
    assert!(near(index.reads.average, 15.0), "{index:?}");
    assert!(near(index.reads.peak, 75.0), "{index:?}");
    assert!(near(index.busiest.reads, 15.0), "{index:?}");
    assert!(near(table.bytes.unwrap(), 700_000_000.0), "{table:?}");
    let month = 15.0 * 2_628_000.0 * 0.125 / 1e6;
    let storage = 2.0 * 700_000_000.0 / 1_073_741_824.0 * 0.25;
    assert!(near(on_demand_dollars.unwrap(), month + storage), "{on_demand_dollars:?}");
}

/// Goal: items that are read separately are rounded up separately, even if the model states their
/// sizes. Each case has a command, `items_per_request`, `item_bytes`, and the measured result of one
/// request: items, units of the table, units of the index. The test expects the reads per second of
/// the table and of its local index, at ten requests per second.
#[test]
fn stated_sizes_keep_what_is_rounded_alone() {
    let query = |more: &str| {
        format!(
            "aws dynamodb query --table-name notes --key-condition-expression 'o = :o' --expression-attribute-values '{{\":o\":{{\"S\":\"a\"}}}}' {more}"
        )
    };
    let keys = r#"[{"o":{"S":"a"},"at":{"S":"1"}},{"o":{"S":"a"},"at":{"S":"2"}}]"#;
    let batch =
        format!(r#"aws dynamodb batch-get-item --request-items '{{"notes":{{"Keys":{keys}}}}}'"#);
    let cases = [
        // Each key of a batch is an item.
        (batch.clone(), Some(2), None, (2, 1.0, 0.0), (10.0, 0.0)),
        (batch.clone(), Some(2), Some(600), (2, 1.0, 0.0), (10.0, 0.0)),
        (batch, Some(4), None, (2, 1.0, 0.0), (20.0, 0.0)),
        // The index lacks attributes, so DynamoDB also reads each item separately from the table.
        (query("--index-name by-kind"), None, None, (4, 2.0, 0.5), (20.0, 5.0)),
        (query("--index-name by-kind"), None, Some(600), (4, 2.0, 0.5), (20.0, 5.0)),
        (query("--index-name by-kind"), Some(8), Some(5_000), (4, 2.0, 0.5), (80.0, 5.0)),
        // Each page is rounded up, and the last page is empty.
        (query("--page-size 1"), None, None, (3, 2.0, 0.0), (20.0, 0.0)),
        (query("--page-size 1"), None, Some(1_000), (3, 2.0, 0.0), (20.0, 0.0)),
        (query("--page-size 2"), Some(5), Some(3_000), (3, 1.0, 0.0), (25.0, 0.0)),
        (query("--page-size 2 --max-items 4"), Some(4), Some(3_000), (4, 1.0, 0.0), (20.0, 0.0)),
        (query("--limit 2"), Some(5), Some(3_000), (2, 0.5, 0.0), (10.0, 0.0)),
        (query("--consistent-read"), Some(5), Some(3_000), (3, 1.0, 0.0), (40.0, 0.0)),
    ];
    for (command, items, bytes, (read_items, of_table, of_index), expected) in cases {
        let text = json!({
            "tables": [{"TableName": "notes", "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "o", "AttributeType": "S"},
                    {"AttributeName": "at", "AttributeType": "S"},
                    {"AttributeName": "kind", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "o", "KeyType": "HASH"},
                    {"AttributeName": "at", "KeyType": "RANGE"}],
                "LocalSecondaryIndexes": [{"IndexName": "by-kind",
                    "KeySchema": [{"AttributeName": "o", "KeyType": "HASH"},
                        {"AttributeName": "kind", "KeyType": "RANGE"}],
                    "Projection": {"ProjectionType": "KEYS_ONLY"}}]}],
            "items": {},
            "access_patterns": [{"pattern": "1", "description": "x", "implementation": command,
                "average_per_second": 10, "items_per_request": items}],
            "workload": {"tables": {"notes": {"item_bytes": bytes}}},
        });
        let model = read("notes.json", &text.to_string()).unwrap();
        let capacity = json!({"TableName": "notes", "Table": {"CapacityUnits": of_table},
            "LocalSecondaryIndexes": {"by-kind": {"CapacityUnits": of_index}}});
        let response =
            json!({"Count": read_items, "ScannedCount": read_items, "ConsumedCapacity": capacity});
        let trial = outcomes(&model, &[Some(response)]);
        let estimate = estimate(&model, &trial, &Prices::own().unwrap());
        let [table, index] = estimate.tables[0].parts.as_slice() else { panic!("{estimate:?}") };
        let found = (table.reads.average, index.reads.average);
        let is_expected = near(found.0, expected.0) && near(found.1, expected.1);
        assert!(is_expected, "{command} {items:?} {bytes:?}: {found:?}, not {expected:?}");
    }
}

#[test]
fn a_table_of_another_class_says_how_it_is_priced() {
    for (class, expected) in [("STANDARD", false), ("STANDARD_INFREQUENT_ACCESS", true)] {
        let line = format!("PAY_PER_REQUEST\n    TableClass: {class}\n");
        let text = BASE.replace("PAY_PER_REQUEST\n", &line);
        let shown = run_everything(&text).unwrap();
        assert_eq!(shown.contains("priced as Standard although"), expected, "{shown}");
    }
}

/// Goal: the units are those of the examples in AWS's developer guide, "DynamoDB provisioned
/// capacity mode", for items of 3 KB and 1.5 KB.
#[test]
fn units_are_those_of_the_developer_guide() {
    use crate::capacity::{read_units, write_units};
    let item = |bytes: usize| Item::new().with("a", "x".repeat(bytes - 1).as_str());
    for (bytes, reads, writes) in
        [(3_072, 1.0, 3.0), (1_536, 1.0, 2.0), (4_097, 2.0, 5.0), (1, 1.0, 1.0)]
    {
        let item = item(bytes.max(2));
        assert!(near(read_units(&item), reads), "{bytes}");
        assert!(near(write_units(None, Some(&item)), writes), "{bytes}");
    }
}

#[test]
fn a_run_reads_all_pages() {
    let command = "aws dynamodb scan --table-name orders --page-size 1";
    let command = Command::parse(command).unwrap();
    let mut run = Run::new(&command);
    let page = |items: Value, last: Option<&str>| {
        let last = last.map(|key| json!({"pk": {"S": key}}));
        let mut page = json!({"Items": items, "Count": 1, "ScannedCount": 2,
            "ConsumedCapacity": {"TableName": "orders", "CapacityUnits": 0.5, "Table": {"CapacityUnits": 0.5}}});
        if let Some(last) = last {
            page["LastEvaluatedKey"] = last;
        }
        page.to_string()
    };
    run.take(true, &page(json!([1]), Some("a")));
    let next = run.request().unwrap();
    assert_eq!(next.parameters["ExclusiveStartKey"], json!({"pk": {"S": "a"}}));
    assert_eq!(next.parameters["ReturnConsumedCapacity"], "INDEXES");
    run.take(true, &page(json!([2]), None));
    assert_eq!(run.request(), None);
    let outcome = run.outcome();
    assert_eq!((outcome.read, outcome.returned), (4, 2));
    assert_eq!(outcome.answer, json!({"Items": [1, 2], "Count": 2, "ScannedCount": 4}));
    assert!(near(outcome.units().0, 1.0));
}

#[test]
fn preparation_creates_and_fills_tables() {
    let model = read("base.yaml", BASE).unwrap();
    let requests = trial::preparation(&model);
    let operations: Vec<_> = requests.iter().map(|(_, request)| request.operation).collect();
    assert_eq!(operations, ["CreateTable", "PutItem"]);
    let created = &requests[0].1.parameters;
    assert_eq!(created["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(created["KeySchema"][1], json!({"AttributeName": "sk", "KeyType": "RANGE"}));
    assert_eq!(created["GlobalSecondaryIndexes"][0]["Projection"]["ProjectionType"], "INCLUDE");
}

/// Returns a made-up response of a store to a command, with this consumed capacity for each of its
/// tables and indexes.
fn made_up(model: &DataModel, command: &Command, units: f64) -> Value {
    let part = json!({"CapacityUnits": units});
    let parts = |indexes: &[Index]| -> Value {
        let parts = indexes.iter().map(|index| (index.index_name.clone(), part.clone()));
        Value::Object(parts.collect())
    };
    let tables = command.tables().into_iter().filter_map(|name| model.table(name));
    let capacity = tables.map(|(_, table)| {
        json!({"TableName": table.table_name, "Table": part,
            "GlobalSecondaryIndexes": parts(&table.global_secondary_indexes),
            "LocalSecondaryIndexes": parts(&table.local_secondary_indexes)})
    });
    let capacity: Vec<Value> = capacity.collect();
    json!({"Items": [{}], "Count": 1, "ScannedCount": 4, "ConsumedCapacity": capacity})
}

/// Runs the complete check on a text without a store. Responses are made up, and every fourth
/// pattern is rejected. Returns the report; `None` if the text is not a model.
fn run_everything(text: &str) -> Option<String> {
    let model = read("any.yaml", text).ok()?;
    let outcome = |(at, pattern): (usize, &AccessPattern)| {
        let command = pattern.command.as_ref()?;
        let mut run = Run::new(command);
        match at % 4 {
            3 => run.take(false, r#"{"__type": "x#ValidationException", "message": "no"}"#),
            _ => run.take(true, &made_up(&model, command, 2.5).to_string()),
        }
        let mut outcome = run.outcome();
        outcome.created = command.tables().into_iter().map(|table| (table.to_owned(), 1)).collect();
        Some(outcome)
    };
    let trial: Vec<_> = model.patterns.iter().enumerate().map(outcome).collect();
    let prices = Prices::own().unwrap();
    let estimate = estimate(&model, &trial, &prices);
    let found = findings::find(("any.yaml", text), &model, &trial, (&estimate, &prices));
    let shown = report::Report {
        model: &model,
        trial: &trial,
        estimate: &estimate,
        findings: &found,
        prices: &prices,
    };
    assert!(!sam::template(&model, "any.yaml").is_empty());
    assert_eq!(shown.json(&[])["patterns"].as_array().map(Vec::len), Some(model.patterns.len()));
    Some(shown.text())
}

#[test]
fn made_up_responses_reach_units_prices_and_findings() {
    for text in MODELS {
        let shown = run_everything(text).unwrap();
        assert!(shown.contains(" on average\n"), "{shown}");
        assert!(shown.contains(" dollars a month on demand, or "), "{shown}");
    }
    let shown = MODELS.map(|text| run_everything(text).unwrap()).concat();
    for finding in ["refused", "changing-key", "scan", "filter", "hot-partition"] {
        assert!(shown.contains(&format!("[{finding}]")), "{finding}: {shown}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        run_everything(&text);
        let _ = Command::parse(&text);
        let _ = Command::parse(&format!("aws dynamodb {text}"));
    }

    #[test]
    fn no_change_of_a_model_makes_the_reader_panic(
        model in 0..MODELS.len(),
        at in any::<prop::sample::Index>(),
        length in 0_usize..40,
        instead in "[\\[\\]{}:,'\"#&*!|>a-z0-9 \n-]{0,8}",
    ) {
        let text = MODELS[model];
        let at = at.index(text.len());
        let end = (at + length).min(text.len());
        let text = format!("{}{instead}{}", &text[..at], &text[end..]);
        run_everything(&text);
    }
}
