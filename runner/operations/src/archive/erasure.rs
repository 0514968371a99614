//! `weir archive erase`: counts the rows of a key or a tenant, and invokes the function
//! `archive-maintenance`, which erases them and writes a receipt.
//!
//! Before an erasure, the rows are counted, so that a wrong key is found before a receipt is
//! written. An erasure with a name is sent even if no row is left, because an earlier call may have
//! been killed after it erased the last row. That call wrote no receipt, and a versioned bucket
//! still keeps the rows. An erasure without a name gets a name that is derived from the selection,
//! so that it can be resumed too.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;

use clap::Args;
use md5::{Digest as _, Md5};
use model::{AttributeValue, Item, json};
use serde_json::{Map, Value, json};

use super::answer::as_written;
use super::item_match::{BeginsWith, ItemMatch};
use super::maintenance::{ask, ask_of, rows_erased};
use super::output::Output;
use super::place::Found;
use super::reading::Reading;
use super::source::{Part, Source};
use super::table_argument::NamedTable;
use client::exit::Exit;
use client::failure::{Context, Failure, Result, fatal, refused};
use client::interruption;
use client::item_key;
use client::output::{counted, say};
use client::running::Running;

/// Arguments of `weir archive erase`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive erase --table orders --begins-with pk=TENANT#7# --dry-run\n  weir archive erase --table orders --begins-with pk=TENANT#7#\n  weir archive erase --table movies --equals '{\"year\":2013,\"title\":\"Rush\"}' --yes\n\nExit codes: 0 the rows are erased, now or by an earlier run with the same --name; 3 no row matches; 4 refused: the table does not exist, or the erasure was not confirmed"
)]
pub(super) struct EraseArguments {
    #[command(flatten)]
    table: NamedTable,
    /// Attributes with their values, in plain JSON or DynamoDB JSON
    #[arg(long, value_name = "JSON")]
    equals: Option<String>,
    /// A string attribute and its prefix
    #[arg(long, value_name = "ATTRIBUTE=TEXT")]
    begins_with: Option<String>,
    /// Name of the erasure; the same name resumes it [default: a hash of the rows]
    #[arg(long)]
    name: Option<String>,
    /// Count the rows without erasing them
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Erase without confirmation
    #[arg(long)]
    yes: bool,
}

/// A program's request to erase rows, with the same fields as the flags of `weir archive erase`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EraseRequest {
    /// The archived table.
    pub table: String,
    /// Attributes with their values, in plain JSON or DynamoDB JSON.
    pub equals: Option<String>,
    /// A string attribute and its prefix, such as `pk=TENANT#7#`.
    pub begins_with: Option<String>,
}

/// The rows that an erasure would remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasePreview {
    /// Number of rows.
    pub rows: usize,
    /// Number of objects that contain these rows.
    pub objects: usize,
    /// The name of the erasure, with which it can be resumed.
    pub name: String,
    /// A description of the rows that would be erased, for the operator.
    pub text: String,
}

/// Counts the rows that an erasure would remove.
///
/// # Errors
/// When the request selects every row or is malformed, or the archive has no such table.
pub(super) async fn preview(source: &Source, request: &EraseRequest) -> Result<ErasePreview> {
    let arguments = EraseArguments::of(request);
    let meant = arguments.meant(source).await?;
    let text = match meant.rows {
        0 => format!("no row {}", arguments.words()),
        _ => arguments.confirmation_text(meant),
    };
    let SelectedRows { rows, objects } = meant;
    Ok(ErasePreview { rows, objects, name: arguments.called()?, text })
}

/// Invokes the function of a running system to erase the rows. Returns the receipt as JSON.
///
/// # Errors
/// When the request is malformed, or the function fails.
pub(super) async fn carry_out(running: &Running, request: &EraseRequest) -> Result<String> {
    let event = EraseArguments::of(request).request()?;
    Ok(as_written(&ask_of(running, event).await?))
}

/// The number of selected rows, and the number of objects that contain them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SelectedRows {
    rows: usize,
    objects: usize,
}

impl EraseArguments {
    /// Returns the arguments of a program's request.
    fn of(request: &EraseRequest) -> Self {
        Self {
            table: NamedTable::of(&request.table),
            equals: request.equals.clone(),
            begins_with: request.begins_with.clone(),
            name: None,
            dry_run: false,
            yes: true,
        }
    }

    /// Validates the flags that select rows.
    ///
    /// # Errors
    /// When a flag is missing or invalid; the message states what to write.
    pub(super) fn check(&self) -> Result<()> {
        self.subject().map(drop)
    }

    /// Returns the function's event.
    ///
    /// # Errors
    /// When a flag is malformed.
    fn request(&self) -> Result<Value> {
        let mut erase = Map::new();
        erase.insert("table".to_owned(), json!(self.table.name()));
        let ItemMatch { equals, begins_with } = self.subject()?;
        if !equals.is_empty() {
            let typed = serde_json::from_str(&json::item_to_string(&equals));
            let typed: Value = typed.context(|| "--equals")?;
            erase.insert("equals".to_owned(), typed);
        }
        if let Some(BeginsWith { attribute, text }) = begins_with {
            erase.insert("beginsWith".to_owned(), json!({ attribute: text }));
        }
        erase.insert("name".to_owned(), json!(self.called()?));
        Ok(json!({ "erase": erase }))
    }

    /// Returns the name of the erasure: the given name, or a hash of the selection. A receipt must
    /// contain no key, so the name must not contain a key either.
    fn called(&self) -> Result<String> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let ItemMatch { equals, begins_with } = self.subject()?;
        let begins_with = begins_with.map(|begins| (begins.attribute, begins.text));
        let text = json!([json::item_to_string(&equals), begins_with]).to_string();
        let hash = u128::from_be_bytes(Md5::digest(text.as_bytes()).into());
        Ok(format!("rows-{hash:032x}"))
    }

    /// Parses the attributes of --equals. A document among plain values is refused, because a value
    /// such as `{"S":"x"}` would be ambiguous.
    fn equal(&self) -> Result<Item> {
        let Some(text) = &self.equals else { return Ok(Item::new()) };
        let wrong = |reason: Failure| {
            fatal!(
                "--equals `{text}`: {reason}; write, for example, '{{\"year\":2013,\"title\":\"Rush\"}}', or DynamoDB JSON such as '{{\"title\":{{\"S\":\"Rush\"}}}}'"
            )
        };
        let equals = item_key::attributes(text).map_err(wrong)?;
        let is_document =
            |value: &AttributeValue| matches!(value, AttributeValue::M(_) | AttributeValue::L(_));
        let is_typed = json::item_from_str(text).is_ok();
        match equals.iter().find(|(_, value)| is_document(value) && !is_typed) {
            Some((name, _)) => Err(wrong(fatal!(
                "`{name}` is a document among plain values: write all values in DynamoDB JSON"
            ))),
            None => Ok(equals),
        }
    }

    /// Returns the selected rows, as the function parses them from the event.
    fn subject(&self) -> Result<ItemMatch> {
        let equals = self.equal()?;
        let begins_with = self.begins_with.as_deref().map(BeginsWith::parse).transpose()?;
        if equals.is_empty() && begins_with.is_none() {
            let named = self
                .equals
                .as_ref()
                .map_or("no filter is given", |_| "--equals names no attribute");
            return Err(fatal!(
                "{named}, so this would erase every row: select rows with --equals, for example '{{\"title\":\"Rush\"}}', or with --begins-with, for example pk=TENANT#7#"
            ));
        }
        Ok(ItemMatch { equals, begins_with })
    }

    /// Counts the selected rows in the table's parts.
    ///
    /// # Errors
    /// When a flag is invalid, or the archive cannot be read; a refusal if the archive does not
    /// have the table.
    async fn meant(&self, source: &Source) -> Result<SelectedRows> {
        let (subject, table) = (self.subject()?, self.table.name());
        let all = source.parts(None, None).await?;
        let parts: Vec<Part> = all.iter().filter(|part| part.table == *table).cloned().collect();
        if parts.is_empty() {
            let tables: BTreeSet<&str> = all.iter().map(|part| part.table.as_str()).collect();
            let tables = match tables.into_iter().collect::<Vec<_>>().as_slice() {
                [] => "; it has no tables".to_owned(),
                tables => format!("; tables are {}", tables.join(", ")),
            };
            return Err(refused!("the archive has no table `{table}`{tables}"));
        }
        count(&subject, source, parts).await
    }

    /// Describes the selected rows.
    fn words(&self) -> String {
        let equals = self.equals.as_ref().map(|equals| format!("equals `{equals}`"));
        let begins = self.begins_with.as_deref().and_then(|text| text.split_once('='));
        let begins = begins.map(|(name, text)| format!("has `{name}` beginning with `{text}`"));
        equals.into_iter().chain(begins).collect::<Vec<_>>().join(" and ")
    }

    /// Returns the message that no row matches. It names the flag that resumes a killed erasure,
    /// because only the function can find out whether the bucket still keeps the rows.
    fn none_is_meant(&self) -> Result<String> {
        let none = format!("no row {}; nothing was erased", self.words());
        if self.dry_run {
            return Ok(none);
        }
        Ok(format!(
            "{none}; to resume an erasure of these rows that ended without a receipt, add --name {}",
            self.called()?
        ))
    }

    /// Describes the rows to erase, for the confirmation.
    fn confirmation_text(&self, meant: SelectedRows) -> String {
        let (SelectedRows { rows, objects }, table) = (meant, self.table.name());
        if rows == 0 {
            return format!(
                "all noncurrent versions of the objects of `{table}` in the bucket, permanently; no current row matches"
            );
        }
        let (rows, objects) = (counted(rows, "row", "rows"), counted(objects, "object", "objects"));
        format!("{rows} of `{table}` in {objects}, permanently")
    }
}

async fn count(subject: &ItemMatch, source: &Source, parts: Vec<Part>) -> Result<SelectedRows> {
    let (mut events, mut meant) = (BTreeSet::new(), SelectedRows::default());
    let mut reading = Reading::of(source, parts);
    while let Some((part, batches)) = reading.next(Some(&["_item", "_event_id"])).await? {
        let mut holds = false;
        for row in part.rows(batches) {
            let row = row?;
            if subject.is_met_by(&part.item(&row)?) {
                holds = true;
                // Events are counted by id, because a row may be in two objects during a
                // compaction.
                events.insert(row.text("_event_id").to_owned());
            }
        }
        meant.objects += usize::from(holds);
        interruption::reached(format!(
            "found {} that match; nothing was erased",
            counted(events.len(), "row", "rows")
        ));
    }
    meant.rows = events.len();
    Ok(meant)
}

/// Invokes an erasure in the running system, after counting the rows and a confirmation.
///
/// # Errors
/// When no `weir up` is running, the archive cannot be read, or the function fails.
pub(super) async fn erase(
    arguments: &EraseArguments,
    found: Found,
    output: &mut Output<'_>,
) -> Result<Exit> {
    let request = arguments.request()?;
    let source = match found {
        Found::Archive(source) => source,
        Found::Nothing(why) => return Err(refused!("refused: {why}")),
    };
    let table = arguments.table.name();
    let meant = match arguments.meant(&source).await {
        Err(Failure::Refused(why)) => return Err(refused!("refused: {why}")),
        meant => meant?,
    };
    if arguments.dry_run {
        let counted = json!({
            "table": table, "dry_run": true, "rows": meant.rows, "objects": meant.objects,
        });
        output.line(&counted.to_string())?;
    }
    if meant.rows == 0 && (arguments.dry_run || arguments.name.is_none()) {
        say(&arguments.none_is_meant()?);
        return Ok(Exit::Differences);
    }
    if arguments.dry_run {
        return Ok(Exit::Done);
    }
    let what = arguments.confirmation_text(meant);
    if !arguments.yes {
        confirm(&what, std::io::stdin().is_terminal())?;
    }
    if arguments.name.is_none() {
        say(&format!(
            "the erasure has the name `{0}`: if it ends without a receipt, run it again with --name {0}",
            arguments.called()?
        ));
    }
    let answer = ask(request).await?;
    output.line(&as_written(&answer))?;
    if has_erased(&answer) {
        return Ok(Exit::Done);
    }
    say(&format!("no row {}, and no earlier run erased one: see the receipt", arguments.words()));
    Ok(Exit::Differences)
}

/// Returns true if the receipt lists an erased row, of this call or of an earlier call with the
/// same name.
fn has_erased(answer: &str) -> bool {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    answer.get("erased").is_some_and(|receipt| rows_erased(receipt) > 0)
}

/// Asks the operator for a confirmation.
///
/// # Errors
/// A refusal if the operator does not confirm. Without a terminal, the refusal explains how to
/// confirm.
fn confirm(what: &str, is_terminal: bool) -> Result<()> {
    if !is_terminal {
        return Err(refused!(
            "refused: this erases {what}; add --yes to confirm, or --dry-run to count only"
        ));
    }
    say(&format!("This erases {what}. Type `yes` to continue:"));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context(|| "cannot read stdin")?;
    if answer.trim() == "yes" { Ok(()) } else { Err(refused!("nothing was erased")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An erasure with a name may have been killed after it erased the last row; only the function
    /// can find out whether the erasure is complete.
    #[test]
    fn an_erasure_with_a_name_is_asked_for_also_when_no_row_is_left() {
        let folder = super::super::tests::archive();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let erase = |title: &str, name: Option<&str>, yes: bool, dry_run: bool| {
            let arguments = EraseArguments {
                table: NamedTable::of("movies"),
                equals: None,
                begins_with: Some(format!("title={title}")),
                name: name.map(str::to_owned),
                dry_run,
                yes,
            };
            let found = Found::Archive(Source::Folder(folder.path().to_owned()));
            let mut written = Vec::new();
            runtime.block_on(erase(&arguments, found, &mut Output::new(&mut written)))
        };
        for (title, name, yes, dry_run, expected) in [
            ("Nobody", None, true, false, Some(Exit::Differences)),
            ("Nobody", Some("n"), false, true, Some(Exit::Differences)),
            // No `weir up` is running.
            ("Nobody", Some("n"), true, false, None),
            ("Rush", None, true, false, None),
            ("Rush", Some("n"), false, true, Some(Exit::Done)),
        ] {
            assert_eq!(erase(title, name, yes, dry_run).ok(), expected, "{title} {name:?} {yes}");
        }
    }

    /// Different flags that select the same rows result in the same name.
    #[test]
    fn an_erasure_without_a_name_has_one_that_the_same_rows_have_each_time() {
        let called = |equals: &str, begins_with: Option<&str>| {
            let arguments = EraseArguments {
                table: NamedTable::of("t"),
                equals: Some(equals.to_owned()),
                begins_with: begins_with.map(str::to_owned),
                name: None,
                dry_run: false,
                yes: true,
            };
            let request = arguments.request().unwrap();
            let name = request.pointer("/erase/name").unwrap().as_str().unwrap().to_owned();
            assert!(arguments.none_is_meant().unwrap().ends_with(&format!("--name {name}")));
            name
        };
        let name = called(r#"{"a":{"S":"x"},"n":{"N":"1.0"}}"#, None);
        assert_eq!(name, called(r#"{ "n": {"N":"1"}, "a": {"S":"x"} }"#, None));
        assert_ne!(name, called(r#"{"a":{"S":"x"},"n":{"N":"2"}}"#, None));
        assert_ne!(name, called(r#"{"a":{"S":"x"},"n":{"N":"1"}}"#, Some("a=x")));
        // The function accepts only names of these characters.
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{name}");
    }

    #[test]
    fn a_receipt_without_rows_is_a_difference() {
        for (answer, expected) in [
            (r#"{"erased":{"rows":170000}}"#, true),
            (r#"{"erased":{"rows":0}}"#, false),
            (r#"{"erased":{"eventIds":["a"]}}"#, true),
            (r#"{"erased":{"eventIds":[]}}"#, false),
            ("{}", false),
        ] {
            assert_eq!(has_erased(answer), expected, "{answer}");
        }
    }

    #[test]
    fn flags_of_an_erasure_become_an_event() {
        let erase = |equals: Option<&str>, begins_with: Option<&str>| {
            let (equals, begins_with) = (equals.map(str::to_owned), begins_with.map(str::to_owned));
            let name = Some("n".to_owned());
            EraseArguments {
                table: NamedTable::of("t"),
                equals,
                begins_with,
                name,
                dry_run: false,
                yes: false,
            }
        };
        let request = |equals, begins_with| erase(equals, begins_with).request();
        assert_eq!(
            request(Some(r#"{"a":{"S":"x"}}"#), Some("pk=T#1#=")).unwrap().to_string(),
            r##"{"erase":{"beginsWith":{"pk":"T#1#="},"equals":{"a":{"S":"x"}},"name":"n","table":"t"}}"##
        );
        for (plain, typed) in [
            (r#"{"a":"x","n":2013}"#, r#"{"a":{"S":"x"},"n":{"N":"2013"}}"#),
            (r#"{"a":true,"z":null}"#, r#"{"a":{"BOOL":true},"z":{"NULL":true}}"#),
            (r#"{"m":{"M":{"a":{"S":"x"}}}}"#, r#"{"m":{"M":{"a":{"S":"x"}}}}"#),
        ] {
            let request = request(Some(plain), None).unwrap();
            assert_eq!(request.pointer("/erase/equals").unwrap().to_string(), typed);
        }
        for (text, expected) in [
            ("{", "not JSON"),
            (r#"{"a":{"S":"x"},"n":1}"#, "`a` is a document among plain values"),
            (r#"{"a":["x"]}"#, "`a` is a document among plain values"),
            (r#"{"a":{"X":"x"}}"#, "write, for example,"),
        ] {
            let said = request(Some(text), None).unwrap_err().to_string();
            assert!(said.starts_with("--equals `") && said.contains(expected), "{said}");
        }
        for text in ["pk", "=T", "pk="] {
            assert!(
                request(None, Some(text))
                    .unwrap_err()
                    .to_string()
                    .contains("is not ATTRIBUTE=TEXT")
            );
        }
        let subject = |equals| erase(Some(equals), None).subject();
        assert!(
            subject("{}").unwrap_err().to_string().contains("every row: select rows with --equals")
        );
        let none = erase(None, None).check().unwrap_err().to_string();
        assert!(none.contains("with --begins-with, for example pk=TENANT#7#"), "{none}");
        assert_eq!(erase(None, Some("titel=R")).words(), "has `titel` beginning with `R`");
    }
}
