//! A SAM template with the tables of a model.
//!
//! Tables become `AWS::DynamoDB::Table`, whose properties have the names of `CreateTable`. The text is JSON
//! within YAML, so no value needs quotes of its own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::data_model::{DataModel, Table};

/// Returns the template. `source` is the name of the model's file.
#[must_use]
pub fn template(model: &DataModel, source: &str) -> String {
    let mut text = format!(
        "# Made by `weir model template {source}`.\nAWSTemplateFormatVersion: \"2010-09-09\"\nTransform: AWS::Serverless-2016-10-31\nDescription: Tables of a data model.\nResources:\n"
    );
    let mut taken = BTreeSet::new();
    for table in &model.tables {
        let id = logical_id(&table.table_name, &mut taken);
        let deletion = "    DeletionPolicy: Retain\n    UpdateReplacePolicy: Retain\n";
        text.push_str(&format!(
            "  {id}:\n    Type: AWS::DynamoDB::Table\n{deletion}    Properties:\n"
        ));
        write(&mut text, &properties(model, table), 6);
    }
    text
}

/// Returns the properties of a table's resource.
fn properties(model: &DataModel, table: &Table) -> Value {
    let mut properties = json!(table);
    let Some(members) = properties.as_object_mut() else { return properties };
    // CloudFormation has no `StreamEnabled`: a stream is enabled where it is declared.
    let stream = table.stream_specification.as_ref().filter(|stream| stream.stream_enabled);
    members.remove("StreamSpecification");
    if let Some(view) = stream.map(|stream| stream.stream_view_type.as_deref()) {
        let view = view.unwrap_or("NEW_AND_OLD_IMAGES");
        members.insert("StreamSpecification".to_owned(), json!({"StreamViewType": view}));
    }
    if let Some(Value::Object(encryption)) = members.get_mut("SSESpecification")
        && let Some(enabled) = encryption.remove("Enabled")
    {
        encryption.insert("SSEEnabled".to_owned(), enabled);
    }
    let workload = model.workload.get(&table.table_name);
    if let Some(attribute) = workload.and_then(|workload| workload.time_to_live.as_ref()) {
        let setting = json!({"AttributeName": attribute, "Enabled": true});
        members.insert("TimeToLiveSpecification".to_owned(), setting);
    }
    properties
}

/// Returns a name for a table's resource: letters and digits alone, as CloudFormation requires.
fn logical_id(table: &str, taken: &mut BTreeSet<String>) -> String {
    let words = table.split(|letter: char| !letter.is_ascii_alphanumeric());
    let name: String = words
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_uppercase() + rest
        })
        .collect();
    let name = format!("{name}Table");
    let numbered = (2_u32..).map(|number| format!("{name}{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_else(|| name.clone());
    taken.insert(free.clone());
    free
}

/// Writes an object as YAML: its members in blocks, what is within lists as JSON on one line.
fn write(text: &mut String, value: &Value, indent: usize) {
    let Some(members) = value.as_object() else { return };
    let margin = " ".repeat(indent);
    for (name, value) in members {
        match value {
            Value::Array(list) if !list.is_empty() => {
                text.push_str(&format!("{margin}{name}:\n"));
                for member in list {
                    text.push_str(&format!("{margin}  - {}\n", flow(member)));
                }
            }
            _ => text.push_str(&format!("{margin}{name}: {}\n", flow(value))),
        }
    }
}

/// Returns a value as YAML on one line. Text is in quotes, unless it is a plain word.
fn flow(value: &Value) -> String {
    let is_word = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                .contains(&text.to_lowercase().as_str())
    };
    match value {
        Value::String(text) if is_word(text) => text.clone(),
        Value::Array(members) => {
            format!("[{}]", members.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name}: {}", flow(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
