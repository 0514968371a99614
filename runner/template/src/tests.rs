//! Parses every template in `testdata`, and compares the stack or the diagnostics with the expected
//! output in the `.txt` file next to it. `UPDATE=1 cargo test -p template` rewrites the expected
//! outputs.

use std::{fmt::Write, fs, path::Path, time::Instant};

use proptest::prelude::*;

use crate::{Code, Context, Severity, read, read_bytes};

/// Parses a template and returns the result as text. The first line of the template may set
/// parameters: `# parameters: Stage=prod, Name=value`.
fn render(name: &str, bytes: &[u8]) -> String {
    let mut context = Context::default();
    let text = String::from_utf8_lossy(bytes);
    let given = text.lines().next().and_then(|line| line.strip_prefix("# parameters: "));
    for pair in given.unwrap_or_default().split(", ").filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap();
        context.parameters.insert(key.to_owned(), value.to_owned());
    }
    let stack = match read_bytes(name, bytes, &context) {
        Err(diagnostics) => return format!("{diagnostics}\n"),
        Ok(stack) => stack,
    };
    let mut out = String::new();
    for table in &stack.tables {
        writeln!(out, "{table:#?}").unwrap();
    }
    for bucket in &stack.buckets {
        writeln!(out, "{bucket:?}").unwrap();
    }
    for function in &stack.functions {
        writeln!(out, "{function:#?}").unwrap();
    }
    for mapping in &stack.mappings {
        writeln!(out, "{mapping:#?}").unwrap();
    }
    for schedule in &stack.schedules {
        let crate::Schedule { logical_id, function, expression, input, retries, enabled, at } =
            schedule;
        writeln!(out, "Schedule {logical_id} of {function} at {at:?}: {expression}").unwrap();
        writeln!(out, "    enabled={enabled} retries={retries} input={input:?}").unwrap();
    }
    if !stack.not_emulated.is_empty() {
        writeln!(out, "\nnot emulated:").unwrap();
    }
    for entry in &stack.not_emulated {
        let path = format!("{} {}", entry.resource, entry.property);
        writeln!(out, "{:4} {} ({}): {}", entry.at.line, path.trim(), entry.kind, entry.instead)
            .unwrap();
    }
    for absent in &stack.not_run {
        let crate::NotRun { what, resource, function, accepted, at, stream: _, reason: _ } = absent;
        writeln!(
            out,
            "{:4} {what:?} {resource} of {function} does not run, accepted={accepted}",
            at.line
        )
        .unwrap();
    }
    for warning in &stack.warnings {
        writeln!(out, "\n{warning}").unwrap();
    }
    out
}

fn check(name: &str, text: &[u8], expected: &Path) {
    let found = render(name, text);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(expected, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(expected).unwrap_or_default();
    assert_eq!(found, expected, "{name} (UPDATE=1 rewrites what is expected)");
}

#[test]
fn templates_match_their_expected_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let is_template = path.extension().is_some_and(|end| end == "yaml" || end == "json");
        if is_template {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = fs::read(&path).unwrap();
            check(&name, &text, &path.with_extension("txt"));
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} templates found");
}

#[test]
fn the_projects_own_template_is_accepted() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(package.join("../../template.yaml")).unwrap();
    check("template.yaml", text.as_bytes(), &package.join("testdata/project.txt"));

    let stack = read("template.yaml", &text, &Context::default()).unwrap();
    let tables: Vec<&str> = stack.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(
        tables,
        [
            "movies",
            "votes",
            "totals",
            "movies-history",
            "products",
            "order-lines",
            "fan-out-jobs",
            "weir-migrations"
        ]
    );
    for function in &stack.functions {
        // The binary's name is derived from the logical id: `FanOutFunction` has the binary
        // `fan-out`.
        let Code::Binary(binary) = &function.code else { panic!("{:?}", function.code) };
        let words = binary.split('-').map(|word| word[..1].to_uppercase() + &word[1..]);
        assert_eq!(function.logical_id, words.collect::<String>() + "Function");
    }
    for mapping in &stack.mappings {
        assert!(mapping.report_batch_item_failures, "{}", mapping.logical_id);
        assert!(mapping.bisect_batch_on_function_error, "{}", mapping.logical_id);
        assert!(mapping.record_age_max.is_some(), "{}", mapping.logical_id);
        assert!(mapping.on_failure.is_some(), "{}", mapping.logical_id);
    }
    assert!(stack.warnings.is_empty(), "{:?}", stack.warnings);
}

/// Returns the first line of the diagnostics for a text.
fn refusal(text: &str) -> String {
    let diagnostics = read("big.yaml", text, &Context::default()).unwrap_err();
    diagnostics.to_string().lines().next().unwrap().to_owned()
}

#[test]
fn inputs_that_are_too_large_are_refused_and_quickly() {
    let started = Instant::now();
    let sequence = format!("Resources: {}{}", "[".repeat(200), "]".repeat(200));
    let mapping: String =
        (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>();
    let bomb: String = (0..40)
        .map(|level| match level {
            0 => "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(),
            _ => format!(
                "a{level}: &a{level} [{}]\n",
                vec![format!("*a{}", level - 1); 10].join(",")
            ),
        })
        .collect();
    let cases = [
        (
            format!("Description: {}", "x".repeat(1_000_000)),
            "error: this template has 1000013 bytes; CloudFormation allows at most 1000000",
        ),
        (sequence, "error: this is nested deeper than 64 levels"),
        (mapping, "error: this is nested deeper than 64 levels"),
        (bomb, "error: the template has more than 500000 values"),
        ("Resources: &r\n  A: *r\n".to_owned(), "error: this alias is within its own anchor"),
        (
            format!("Resources:\n{}", "  A: {Type: A}\n".repeat(60_000)),
            "error: the key `A` is given twice, first in line 2",
        ),
        (
            format!("Resources: [{}]", "!Ref x,".repeat(140_000)),
            "error: `Resources` must be a mapping, not a list",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(&text), expected);
    }
    assert!(started.elapsed().as_secs() < 60, "took {:?}", started.elapsed());
}

#[test]
fn values_that_grow_are_refused() {
    let mut text = "Parameters:\n  Long:\n    Type: String\n    Default: ".to_owned();
    text.push_str(&"x".repeat(4_096));
    text.push_str(
        "\nTransform: AWS::Serverless-2016-10-31\nResources:\n  F:\n    Type: \
    AWS::Serverless::Function\n",
    );
    text.push_str(
        "    Properties:\n      Runtime: provided.al2023\n      CodeUri: .\n      \
    Description: ok\n      Handler: !Sub \"",
    );
    text.push_str(&"${Long}".repeat(5_000));
    text.push_str("\"\n");
    assert_eq!(refusal(&text), "error: the evaluated values of the template exceed 16000000 bytes");
}

#[test]
fn many_errors_are_counted() {
    let resources: String = (0..400)
        .map(|index| {
            format!(
                "  R{index}:\n    Type: AWS::SNS::Topic\n    Properties: \
        {{TopicName: !Ref Nothing{index}}}\n"
            )
        })
        .collect();
    let diagnostics =
        read("many.yaml", &format!("Resources:\n{resources}"), &Context::default()).unwrap_err();
    assert_eq!((diagnostics.shown.len(), diagnostics.more), (50, 350));
}

#[test]
fn functions_that_do_not_run_are_reported_only_by_errors() {
    let text = include_str!("../testdata/bad-retries.yaml");
    let said = read("t.yaml", text, &Context::default()).unwrap_err().why_not_run();
    assert!(said.starts_with("error: MaximumRetryAttempts 20000 is too large"), "{said}");
    assert_eq!((said.matches("error: ").count(), said.matches("warning[").count()), (4, 0));
    assert!(
        said.ends_with("\n\n4 errors, 6 warnings; `weir check` shows the warnings too"),
        "{said}"
    );
    let one =
        read("t.yaml", "Resources: {A: {Type: AWS::Nothing::Here}, B: 1}", &Context::default());
    let one = one.unwrap_err();
    assert_eq!(one.why_not_run().matches("error: ").count(), one.shown.len());
}

/// Returns a template with a table that has a stream, a function with `properties`, and
/// further `resources`.
fn with_function(properties: &str, resources: &str) -> String {
    format!(
        "Transform: AWS::Serverless-2016-10-31
Resources:
  Films:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{{AttributeName: id, AttributeType: S}}]
      KeySchema: [{{AttributeName: id, KeyType: HASH}}]
      BillingMode: PAY_PER_REQUEST
      StreamSpecification: {{StreamViewType: NEW_IMAGE}}
  CopyFunction:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: provided.al2023
      Handler: bootstrap
      CodeUri: .
      AutoPublishAlias: live
{properties}{resources}"
    )
}

#[test]
fn a_mapping_for_a_version_or_an_alias_is_one_for_its_function() {
    let cases = [
        ("!Ref CopyFunction", None),
        ("!GetAtt CopyFunction.Arn", None),
        ("!Ref CopyFunction.Alias", Some("live")),
        ("!Ref CopyFunctionAliaslive", Some("live")),
        ("!Ref CopyFunction.Version", Some("Version")),
        ("!Sub \"${CopyFunction}:$LATEST\"", None),
        ("!Ref Beta", Some("beta")),
        ("!GetAtt Beta.AliasArn", Some("beta")),
        ("!Ref Third", Some("Third")),
    ];
    for (name, qualifier) in cases {
        let resources = format!(
            "  Third: {{Type: AWS::Lambda::Version, Properties: {{FunctionName: !Ref CopyFunction}}}}
  Beta:
    Type: AWS::Lambda::Alias
    Properties: {{Name: beta, FunctionName: !GetAtt CopyFunction.Arn, FunctionVersion: !GetAtt Third.Version}}
  Link:
    Type: AWS::Lambda::EventSourceMapping
    Properties:
      FunctionName: {name}
      EventSourceArn: !GetAtt Films.StreamArn
      StartingPosition: TRIM_HORIZON
"
        );
        let stack = read("versions.yaml", &with_function("", &resources), &Context::default());
        let stack = stack.unwrap_or_else(|found| panic!("{name}: {found}"));
        let found: Vec<_> = stack
            .mappings
            .iter()
            .map(|mapping| (mapping.function.as_str(), mapping.qualifier.as_deref()))
            .collect();
        assert_eq!(found, [("CopyFunction", qualifier)], "{name}");
        assert!(stack.not_run.is_empty(), "{name}");
    }
}

#[test]
fn properties_invalid_in_lambda_or_unknown_here_are_refused() {
    let queued = |kind: &str| {
        let event = "      Events:
        Change:
          Type: DynamoDB
          Properties:
            Stream: !GetAtt Films.StreamArn
            StartingPosition: TRIM_HORIZON
            DestinationConfig: {OnFailure: {Destination: !GetAtt Failed.Arn}}
";
        with_function(event, &format!("  Failed: {{Type: {kind}}}\n"))
    };
    let fifo = "`Failed` is FIFO, which Lambda does not support as a destination";
    let variables = |text: &str| with_function(&format!("      Environment: {text}\n"), "");
    let cases = [
        (queued("AWS::SQS::Queue, Properties: {FifoQueue: true}"), fifo),
        (queued("AWS::SNS::Topic, Properties: {FifoTopic: \"true\"}"), fifo),
        (variables("{Variables: [A, B]}"), "`Environment.Variables` must be a mapping, not a list"),
        (
            with_function("      EventInvokeConfig: {MaximumRetryAttempts: 3}\n", ""),
            "MaximumRetryAttempts 3 is too large",
        ),
    ];
    for (text, expected) in cases {
        let diagnostics = read("refused.yaml", &text, &Context::default()).unwrap_err();
        let mut errors = diagnostics.shown.iter().filter(|it| it.severity == Severity::Error);
        assert_eq!(errors.next().unwrap().message, expected, "{text}");
    }
    for kind in ["AWS::SQS::Queue", "AWS::SQS::Queue, Properties: {FifoQueue: false}"] {
        assert!(read("queue.yaml", &queued(kind), &Context::default()).is_ok(), "{kind}");
    }
}

#[test]
fn a_schedule_has_the_retries_of_its_function() {
    for (config, expected) in [
        ("", 2),
        ("      EventInvokeConfig: {MaximumEventAgeInSeconds: 60}\n", 2),
        ("      EventInvokeConfig: {MaximumRetryAttempts: 0}\n", 0),
        ("      EventInvokeConfig: {MaximumRetryAttempts: 1}\n", 1),
    ] {
        let event =
            "      Events: {Hourly: {Type: Schedule, Properties: {Schedule: rate(1 hour)}}}\n";
        let text = with_function(&format!("{config}{event}"), "");
        let stack = read("schedule.yaml", &text, &Context::default());
        let stack = stack.unwrap_or_else(|found| panic!("{found}"));
        let retries: Vec<u32> = stack.schedules.iter().map(|found| found.retries).collect();
        assert_eq!(retries, [expected], "{config}");
    }
}

fn project_template() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml");
    fs::read_to_string(path).unwrap()
}

proptest! {
    /// Checks that no text causes a panic, and that every text gives a stack or a diagnostic.
    #[test]
    fn any_text_is_answered(text in "[ -~\n]{0,200}") {
        let _ = read("any.yaml", &text, &Context::default());
    }

    /// Parses templates with removed, duplicated or shifted lines, as during editing.
    #[test]
    fn a_damaged_template_is_answered(
        edits in prop::collection::vec((0usize..400, 0u8..4), 1..6)
    ) {
        let text = project_template();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (at, edit) in edits {
            let at = at % lines.len();
            match edit {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[at].clone()),
                2 => lines[at].insert(0, ' '),
                _ => { let cut = lines[at].len() / 2; lines[at].truncate(cut); }
            }
        }
        if let Err(diagnostics) = read("damaged.yaml", &lines.join("\n"), &Context::default()) {
            prop_assert!(!diagnostics.shown.is_empty());
            for found in diagnostics.shown {
                prop_assert!(found.line >= 1 && found.column >= 1 && found.width >= 1);
            }
        }
    }
}
