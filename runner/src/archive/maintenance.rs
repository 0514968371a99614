//! `weir archive compact` and `weir archive erase`: asks the function `archive-maintenance`.
//!
//! The function is the only one that changes the archive, here as on AWS, where it is invoked with
//! the same events. Nothing is read or written here.

use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::endpoint::Running;
use crate::invoke;

/// The function in the template.
const FUNCTION: &str = "ArchiveMaintenanceFunction";

/// What to compact.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive compact\n  weir archive compact --table movies --age 900\n\nOn AWS: aws lambda invoke --function-name … --payload '{\"compact\":{}}' answer.json"
)]
pub(super) struct CompactArguments {
    /// Only this table
    #[arg(long)]
    table: Option<String>,
    /// Only parts that were written so long ago; 900 at least [default: 26 hours]
    #[arg(long, value_name = "SECONDS")]
    age: Option<u64>,
    /// Also younger parts; only while no function archives
    #[arg(long)]
    nothing_is_archiving: bool,
}

/// What to erase.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive erase --table movies --equals '{\"year\":{\"N\":\"2013\"},\"title\":{\"S\":\"Rush\"}}'\n  weir archive erase --table orders --begins-with pk=TENANT#7#"
)]
pub(super) struct EraseArguments {
    /// The table
    #[arg(long)]
    table: String,
    /// Attributes and their values in DynamoDB JSON, such as a key
    #[arg(long, value_name = "JSON", required_unless_present = "begins_with")]
    equals: Option<String>,
    /// A string attribute and what it begins with
    #[arg(long, value_name = "ATTRIBUTE=TEXT")]
    begins_with: Option<String>,
    /// What the erasure is called: under its name it goes on when it is asked for again
    #[arg(long)]
    name: Option<String>,
}

impl CompactArguments {
    /// The function's event.
    pub(super) fn request(&self) -> Value {
        let mut compact = Map::new();
        compact.insert("nothingIsArchiving".to_owned(), json!(self.nothing_is_archiving));
        if let Some(table) = &self.table {
            compact.insert("table".to_owned(), json!(table));
        }
        if let Some(age) = self.age.or(self.nothing_is_archiving.then_some(0)) {
            compact.insert("ageSeconds".to_owned(), json!(age));
        }
        json!({ "compact": compact })
    }
}

impl EraseArguments {
    /// The function's event.
    ///
    /// # Errors
    /// Flags that are not of the form they should have.
    pub(super) fn request(&self) -> Result<Value, String> {
        let mut erase = Map::new();
        erase.insert("table".to_owned(), json!(self.table));
        if let Some(equals) = &self.equals {
            let value: Value = serde_json::from_str(equals).map_err(|error| {
                format!(
                    "--equals `{equals}` is not JSON: {error}; write '{{\"title\":{{\"S\":\"Rush\"}}}}'"
                )
            })?;
            erase.insert("equals".to_owned(), value);
        }
        if let Some(text) = &self.begins_with {
            let (attribute, text) = text.split_once('=').ok_or_else(|| {
                format!("--begins-with `{text}` is not ATTRIBUTE=TEXT; write `pk=TENANT#7#`")
            })?;
            erase.insert("beginsWith".to_owned(), json!({ attribute: text }));
        }
        if let Some(name) = &self.name {
            erase.insert("name".to_owned(), json!(name));
        }
        Ok(json!({ "erase": erase }))
    }
}

/// Invokes the function of the running system and answers with what it says.
///
/// # Errors
/// When nothing is running, or the function fails.
pub(crate) async fn ask(request: Value) -> Result<String, String> {
    let running = Running::read()?;
    let function = running.function(FUNCTION)?;
    let invoked = invoke::invoke(&running, function, Bytes::from(request.to_string())).await?;
    let body = String::from_utf8_lossy(&invoked.body).into_owned();
    if !invoked.failed {
        return Ok(body);
    }
    let error: Value = serde_json::from_str(&body).unwrap_or_default();
    Err(error.get("errorMessage").and_then(Value::as_str).map_or(body, str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_events() {
        let compact = |table: Option<&str>, age, nothing_is_archiving| {
            let table = table.map(str::to_owned);
            CompactArguments { table, age, nothing_is_archiving }.request().to_string()
        };
        assert_eq!(compact(None, None, false), r#"{"compact":{"nothingIsArchiving":false}}"#);
        assert_eq!(
            compact(Some("movies"), None, true),
            r#"{"compact":{"ageSeconds":0,"nothingIsArchiving":true,"table":"movies"}}"#
        );
        let erase = |equals: Option<&str>, begins_with: Option<&str>| {
            let (equals, begins_with) = (equals.map(str::to_owned), begins_with.map(str::to_owned));
            let name = Some("n".to_owned());
            EraseArguments { table: "t".to_owned(), equals, begins_with, name }.request()
        };
        assert_eq!(
            erase(Some(r#"{"a":{"S":"x"}}"#), Some("pk=T#1#=")).unwrap().to_string(),
            r##"{"erase":{"beginsWith":{"pk":"T#1#="},"equals":{"a":{"S":"x"}},"name":"n","table":"t"}}"##
        );
        assert!(erase(Some("{"), None).unwrap_err().contains("is not JSON"));
        assert!(erase(None, Some("pk")).unwrap_err().contains("is not ATTRIBUTE=TEXT"));
    }
}
