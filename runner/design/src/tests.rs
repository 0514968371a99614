//! Tests of whole models: mistakes, templates, estimates, and texts that are no models.

use std::fs;
use std::path::{Path, PathBuf};

use model::Item;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::command::Command;
use crate::estimate::{Estimate, estimate};
use crate::trial::{Outcome, Run};
use crate::{DataModel, Prices, findings, read, report, sam, trial};

const BASE: &str = include_str!("../testdata/base.yaml");

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

/// Each case replaces the lines with `-` in `base.yaml` by those with `+`. What follows is expected.
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
    // What a model writes can be read again; commands are not part of it.
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

#[test]
fn a_template_has_the_tables_of_the_model() {
    // CloudFormation refuses a property without a value.
    let tagged = BASE.replace("PAY_PER_REQUEST\n", "PAY_PER_REQUEST\n    Tags: []\n");
    let model = read("base.yaml", &tagged).unwrap();
    let template = sam::template(&model, "base.yaml");
/// A text value within this many lists.
fn nested(levels: usize) -> String {
    format!("{}{{S: x}}{}", "{L: [".repeat(levels), "]}".repeat(levels))
}

#[test]
fn an_item_may_be_nested_as_deeply_as_dynamodb_allows() {
    let with = |levels: usize| read("base.yaml", &BASE.replace("{SS: [a, b]}", &nested(levels)));
    // The text within the lists is a level too.
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
    assert!(message.contains("at most 1000000 are read"), "{message}");
    assert!(message.contains("export with fewer `--samples`"), "{message}");
}

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

/// Ten queries per second of 20 items of 600 bytes: 12,000 bytes are 3 units of 4 KB, eventually consistent 1.5.
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

/// What AWS's developer guide has as examples: an item of 3 KB and of 1.5 KB; see "DynamoDB provisioned
/// capacity mode".
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

/// Runs everything that is pure on a text; responses are made up.
fn run_everything(text: &str) {
    let Ok(model) = read("any.yaml", text) else { return };
    let trial = vec![None; model.patterns.len()];
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
    assert!(!shown.text().is_empty());
    assert!(!sam::template(&model, "any.yaml").is_empty());
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
        at in 0..BASE.len(),
        length in 0_usize..40,
        instead in "[\\[\\]{}:,'\"#&*!|>a-z0-9 \n-]{0,8}",
    ) {
        let end = (at + length).min(BASE.len());
        let text = format!("{}{instead}{}", &BASE[..at], &BASE[end..]);
        run_everything(&text);
    }
}
