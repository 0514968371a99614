//! Placeholders for the names and values of expressions, so that expressions contain no names or
//! values directly.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use client::attribute::to_sdk_value;
use model::{AttributeValue, json};

/// The placeholders of one request, in the order in which they were first used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placeholders {
    /// The placeholders of attribute names, each with its name.
    pub(crate) names: Vec<(String, String)>,
    /// The placeholders of values, each with its value.
    pub(crate) values: Vec<(String, AttributeValue)>,
}

impl Placeholders {
    /// Returns the placeholder of a name. A name always has the same placeholder.
    pub(crate) fn name(&mut self, name: &str) -> String {
        if let Some((placeholder, _)) = self.names.iter().find(|(_, known)| known == name) {
            return placeholder.clone();
        }
        let placeholder = format!("#n{}", self.names.len());
        self.names.push((placeholder.clone(), name.to_owned()));
        placeholder
    }

    /// Adds a value, and returns its placeholder.
    pub(crate) fn value(&mut self, value: AttributeValue) -> String {
        let placeholder = format!(":v{}", self.values.len());
        self.values.push((placeholder.clone(), value));
        placeholder
    }

    /// Returns the names as a JSON object.
    pub(crate) fn names_json(&self) -> String {
        let mut out = String::from("{");
        for (position, (placeholder, name)) in self.names.iter().enumerate() {
            out.push_str(if position == 0 { "" } else { "," });
            json::write_string(&mut out, placeholder);
            out.push(':');
            json::write_string(&mut out, name);
        }
        out.push('}');
        out
    }

    /// Returns the values as DynamoDB JSON.
    pub(crate) fn values_json(&self) -> String {
        let mut out = String::new();
        json::write_attributes(&mut out, self.values.iter().map(|(name, value)| (name, value)));
        out
    }

    /// Returns the names for the SDK; `None` if there are none, because DynamoDB rejects an empty
    /// map.
    pub(crate) fn sdk_names(&self) -> Option<HashMap<String, String>> {
        Some(self.names.iter().cloned().collect()).filter(|names: &HashMap<_, _>| !names.is_empty())
    }

    /// Returns the values for the SDK; `None` if there are none, because DynamoDB rejects an empty
    /// map.
    pub(crate) fn sdk_values(&self) -> Option<HashMap<String, SdkValue>> {
        let values = self.values.iter().map(|(name, value)| (name.clone(), to_sdk_value(value)));
        Some(values.collect()).filter(|values: &HashMap<_, _>| !values.is_empty())
    }
}
