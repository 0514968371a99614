//! `weir archive compact` and `weir archive erase`: asks the function `archive-maintenance`.
//!
//! The function is the only one that changes the archive, here as on AWS, where it is invoked with
//! the same events. Nothing is written here; before an erasure the rows that it means are counted,
//! so that a mistaken key is found before a receipt says that all is gone. An erasure that was given a
//! name is asked for also when no row is left: one that died behind its last row has no receipt that
//! says that it is done, and what a versioned bucket keeps of the rows is still there. One without a
//! name gets one of its own, the same each time, so that it can be gone on with too.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;

use bytes::Bytes;
use clap::Args;
use md5::{Digest as _, Md5};
use model::{AttributeValue, Item, json};
use serde_json::{Map, Value, json};

use super::answer::{as_written, with_store_time};
use super::cell::rows_of;
use super::output::Output;
use super::place::Found;
use super::reading::Reading;
use super::source::{Part, Source};
use super::table_argument::{NamedTable, OneOfAll};
use crate::item_key;
use client::endpoint;
use client::exit::Exit;
use client::interruption;
use client::invocation::invoke;
use client::output::{counted, say};
use client::running::Running;

/// The function in the template.
pub const FUNCTION: &str = "ArchiveMaintenanceFunction";

/// The least age of parts at which the function `archive-maintenance` takes them while others write: it
/// checks that itself.
const AGE_SECONDS_MIN: u64 = 900;

/// What to compact.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive compact\n  weir archive compact --table movies --age 900\n\nExit codes: 0 done, 3 something is left for the next time: hours that could not be changed, or there was no time\n\nOn AWS (without these flags the command refuses the payload, or asks a second time after a minute; version 1 of it does not know the first):\n  aws lambda invoke --function-name NAME --cli-binary-format raw-in-base64-out --cli-read-timeout 0 --payload '{\"compact\":{}}' answer.json"
)]
pub(super) struct CompactArguments {
    #[command(flatten)]
    table: OneOfAll,
    /// Only parts that were written so long ago, by the time of their files; 900 at least [default: 26 hours]
    #[arg(long, value_name = "SECONDS")]
    age: Option<u64>,
    /// Also younger parts; only while no function archives
    #[arg(long)]
    nothing_is_archiving: bool,
}

/// What to erase.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive erase --table orders --begins-with pk=TENANT#7# --dry-run\n  weir archive erase --table orders --begins-with pk=TENANT#7#\n  weir archive erase --table movies --equals '{\"year\":2013,\"title\":\"Rush\"}' --yes\n\nExit codes: 0 erased, now or under the same name before, 3 no such row, 4 refused: no such table, or nobody said yes"
)]
pub(super) struct EraseArguments {
    #[command(flatten)]
    table: NamedTable,
    /// Attributes and their values in plain JSON or DynamoDB JSON, such as a key
    #[arg(long, value_name = "JSON")]
    equals: Option<String>,
    /// A string attribute and what it begins with
    #[arg(long, value_name = "ATTRIBUTE=TEXT")]
    begins_with: Option<String>,
    /// What the erasure is called: under its name it goes on when it is asked for again [default: one with a hash of what is erased]
    #[arg(long)]
    name: Option<String>,
    /// Count the rows, and erase nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Erase without asking
    #[arg(long)]
    yes: bool,
}

/// The rows that an erasure means.
#[derive(Debug)]
struct Subject {
    equals: Item,
    begins_with: Option<(String, String)>,
}

/// How many rows are meant, and in how many objects they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Meant {
    rows: usize,
    objects: usize,
}

impl CompactArguments {
    /// Refuses what the function would, in the words of the flags.
    ///
    /// # Errors
    /// An age at which somebody may still be writing.
    fn check(&self) -> Result<(), String> {
        match self.age {
            Some(age) if age < AGE_SECONDS_MIN && !self.nothing_is_archiving => Err(format!(
                "--age {age}: a part may be written to until it is {AGE_SECONDS_MIN} seconds old; say --age {AGE_SECONDS_MIN} or more, or also --nothing-is-archiving if no function archives now"
            )),
            _ => Ok(()),
        }
    }

    /// The function's event.
    pub(super) fn request(&self) -> Value {
        let mut compact = Map::new();
        compact.insert("nothingIsArchiving".to_owned(), json!(self.nothing_is_archiving));
        if let Some(table) = self.table.name() {
            compact.insert("table".to_owned(), json!(table));
        }
        if let Some(age) = self.age.or(self.nothing_is_archiving.then_some(0)) {
            compact.insert("ageSeconds".to_owned(), json!(age));
        }
        json!({ "compact": compact })
    }
}

impl EraseArguments {
    /// Refuses flags that say no rows, before anything is looked for.
    ///
    /// # Errors
    /// Which flag, and what to write.
    pub(super) fn check(&self) -> Result<(), String> {
        self.subject().map(drop)
    }

    /// The function's event.
    ///
    /// # Errors
    /// Flags that are not of the form they should have.
    fn request(&self) -> Result<Value, String> {
        let mut erase = Map::new();
        erase.insert("table".to_owned(), json!(self.table.name()));
        let equals = self.equal()?;
        if !equals.is_empty() {
            let typed = serde_json::from_str(&json::item_to_string(&equals));
            let typed: Value = typed.map_err(|error| format!("--equals: {error}"))?;
            erase.insert("equals".to_owned(), typed);
        }
        if let Some((attribute, text)) = self.beginning()? {
            erase.insert("beginsWith".to_owned(), json!({ attribute: text }));
        }
        erase.insert("name".to_owned(), json!(self.called()?));
        Ok(json!({ "erase": erase }))
    }

    /// The name of the erasure: the given one, or one that the same rows have each time. A receipt
    /// names no key, so neither does it.
    fn called(&self) -> Result<String, String> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let Subject { equals, begins_with } = self.subject()?;
        let text = json!([json::item_to_string(&equals), begins_with]).to_string();
        let hash = u128::from_be_bytes(Md5::digest(text.as_bytes()).into());
        Ok(format!("rows-{hash:032x}"))
    }

    fn beginning(&self) -> Result<Option<(&str, &str)>, String> {
        let Some(text) = &self.begins_with else { return Ok(None) };
        match text.split_once('=') {
            Some((attribute, beginning)) if !attribute.is_empty() && !beginning.is_empty() => {
                Ok(Some((attribute, beginning)))
            }
            _ => Err(format!("--begins-with `{text}` is not ATTRIBUTE=TEXT; write `pk=TENANT#7#`")),
        }
    }

    /// The attributes that are equal, with their types. A document in plain JSON is refused: beside a
    /// value such as `{"S":"x"}` it may be meant as one or the other.
    fn equal(&self) -> Result<Item, String> {
        let Some(text) = &self.equals else { return Ok(Item::new()) };
        let wrong = |reason: &str| {
            format!(
                "--equals `{text}`: {reason}; write such as '{{\"year\":2013,\"title\":\"Rush\"}}', or DynamoDB JSON such as '{{\"title\":{{\"S\":\"Rush\"}}}}'"
            )
        };
        let equals = item_key::attributes(text).map_err(|reason| wrong(&reason))?;
        let is_document =
            |value: &AttributeValue| matches!(value, AttributeValue::M(_) | AttributeValue::L(_));
        let is_typed = json::item_from_str(text).is_ok();
        match equals.iter().find(|(_, value)| is_document(value) && !is_typed) {
            Some((name, _)) => Err(wrong(&format!(
                "`{name}` is a document beside plain values, so write all of them in DynamoDB JSON"
            ))),
            None => Ok(equals),
        }
    }

    /// The rows that are meant, as the function reads them from the event.
    fn subject(&self) -> Result<Subject, String> {
        let equals = self.equal()?;
        let begins_with = self.beginning()?;
        if equals.is_empty() && begins_with.is_none() {
            let named = self
                .equals
                .as_ref()
                .map_or("nothing says which rows", |_| "--equals names no attribute");
            return Err(format!(
                "{named}, and it would mean every row: say which with --equals, such as '{{\"title\":\"Rush\"}}', or with --begins-with, such as pk=TENANT#7#"
            ));
        }
        let owned = |(attribute, text): (&str, &str)| (attribute.to_owned(), text.to_owned());
        Ok(Subject { equals, begins_with: begins_with.map(owned) })
    }

    /// The rows that are meant, in words.
    fn words(&self) -> String {
        let equals = self.equals.as_ref().map(|equals| format!("equals `{equals}`"));
        let begins = self.begins_with.as_deref().and_then(|text| text.split_once('='));
        let begins = begins.map(|(name, text)| format!("has `{name}` beginning with `{text}`"));
        equals.into_iter().chain(begins).collect::<Vec<_>>().join(" and ")
    }

    /// That there is no such row. One that was erased by a call that died has no receipt, and the
    /// bucket may keep it; whether there was such a call only the function can say.
    fn none_is_meant(&self) -> Result<String, String> {
        let none = format!("no row {}; nothing was erased", self.words());
        if self.dry_run {
            return Ok(none);
        }
        Ok(format!(
            "{none}; if an erasure of these rows has ended without a receipt, go on with it: --name {}",
            self.called()?
        ))
    }

    /// What is erased, for who has to say yes.
    fn told(&self, meant: Meant) -> String {
        let (Meant { rows, objects }, table) = (meant, self.table.name());
        if rows == 0 {
            return format!(
                "no row, as none of `{table}` is left, and what the bucket keeps of earlier contents of the table's objects, for good"
            );
        }
        let (rows, objects) = (counted(rows, "row", "rows"), counted(objects, "object", "objects"));
        format!("{rows} of `{table}` in {objects}, for good")
    }
}

impl Subject {
    fn is_met_by(&self, item: &Item) -> bool {
        self.equals.iter().all(|(name, value)| item.get(name) == Some(value))
            && self.begins_with.as_ref().is_none_or(|(name, beginning)| {
                matches!(item.get(name), Some(AttributeValue::S(text)) if text.starts_with(beginning))
            })
    }

    async fn count(&self, source: &Source, parts: Vec<Part>) -> Result<Meant, String> {
        let (mut events, mut meant) = (BTreeSet::new(), Meant::default());
        let mut reading = Reading::of(source, parts);
        while let Some((part, batches)) = reading.next(Some(&["_item", "_event_id"])).await? {
            let failed = |reason: String| format!("cannot read part `{}`: {reason}", part.name);
            let mut holds = false;
            for batch in batches {
                let batch = batch.map_err(|error| failed(error.to_string()))?;
                for row in rows_of(&batch).map_err(failed)? {
                    let item = json::item_from_str(row.text("_item"))
                        .map_err(|error| failed(format!("`_item`: {error}")))?;
                    if self.is_met_by(&item) {
                        holds = true;
                        // Until a compaction is over, a row may stand in two objects.
                        events.insert(row.text("_event_id").to_owned());
                    }
                }
            }
            meant.objects += usize::from(holds);
            interruption::reached(format!(
                "{} that meet the condition found, nothing erased",
                counted(events.len(), "row", "rows")
            ));
        }
        meant.rows = events.len();
        Ok(meant)
    }
}

/// Compacts, by the function of the running system.
///
/// What is left for another time is a difference.
///
/// # Errors
/// When nothing is running, or the function fails.
pub(super) async fn compact(
    arguments: &CompactArguments,
    output: &mut Output<'_>,
) -> Result<Exit, String> {
    arguments.check()?;
    let answer = ask(arguments.request()).await?;
    output.line(&as_written(&answer))?;
    let Some(left) = left_by(&answer) else { return Ok(Exit::Done) };
    say(&left);
    Ok(Exit::Differences)
}

/// What a compaction has left for the next one, in words; `None` if nothing.
fn left_by(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let report = answer.get("compacted")?;
    let hours = report.get("postponedHours").and_then(Value::as_u64).unwrap_or(0);
    let is_complete = report.get("complete").and_then(Value::as_bool).unwrap_or(true);
    let postponed = (hours > 0).then(|| {
        let hours = counted(hours, "hour is", "hours are");
        format!("{hours} as before, or in part: others changed them, or the object store did not answer (`weir logs archive-maintenance` says it)")
    });
    let cut = (!is_complete).then(|| "there was no time for everything".to_owned());
    let left: Vec<String> = postponed.into_iter().chain(cut).collect();
    (!left.is_empty()).then(|| format!("{}; compact again", left.join(", and ")))
}

/// Erases, by the function of the running system, once it is known that there is something to erase
/// and somebody has said yes.
///
/// # Errors
/// When nothing is running, the archive cannot be read, or the function fails.
pub(super) async fn erase(
    arguments: &EraseArguments,
    found: Found,
    output: &mut Output<'_>,
) -> Result<Exit, String> {
    let (request, subject) = (arguments.request()?, arguments.subject()?);
    let source = match found {
        Found::Archive(source) => source,
        Found::Nothing(why) => {
            say(&format!("refused: {why}"));
            return Ok(Exit::Refused);
        }
    };
    let table = arguments.table.name();
    let all = source.parts(None, None).await?;
    let parts: Vec<Part> = all.iter().filter(|part| part.table == *table).cloned().collect();
    if parts.is_empty() {
        let tables: BTreeSet<&str> = all.iter().map(|part| part.table.as_str()).collect();
        let tables = match tables.into_iter().collect::<Vec<_>>().as_slice() {
            [] => ", nor any other".to_owned(),
            tables => format!("; tables are {}", tables.join(", ")),
        };
        say(&format!("refused: the archive has no table `{table}`{tables}"));
        return Ok(Exit::Refused);
    }
    let meant = subject.count(&source, parts).await?;
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
    let what = arguments.told(meant);
    if !arguments.yes && !is_agreed(&what, std::io::stdin().is_terminal())? {
        return Ok(Exit::Refused);
    }
    if arguments.name.is_none() {
        say(&format!(
            "the erasure is called `{0}`: if it ends without a receipt, ask for it again with --name {0}",
            arguments.called()?
        ));
    }
    let answer = ask(request).await?;
    output.line(&as_written(&answer))?;
    if has_erased(&answer) {
        return Ok(Exit::Done);
    }
    say(&format!("no row {}, now or before; the receipt says so", arguments.words()));
    Ok(Exit::Differences)
}

/// Whether the receipt that the function answers with names a row that is gone, by this call or by
/// one before it under its name.
fn has_erased(answer: &str) -> bool {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    answer.get("erased").is_some_and(|receipt| rows_erased(receipt) > 0)
}

/// How many rows are gone by an answer of the function. One from before it told their number names
/// each by its event id, and may be given to a purge long after.
pub(crate) fn rows_erased(receipt: &Value) -> u64 {
    let named = || receipt.get("eventIds").and_then(Value::as_array).map_or(0, Vec::len);
    receipt.get("rows").and_then(Value::as_u64).unwrap_or_else(|| named() as u64)
}

/// Whether a person says yes; where nobody can be asked, how to say it.
fn is_agreed(what: &str, is_terminal: bool) -> Result<bool, String> {
    if !is_terminal {
        say(&format!("refused: this erases {what}; say --yes, or --dry-run to only count"));
        return Ok(false);
    }
    say(&format!("This erases {what}. Type `yes` to go on:"));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| format!("standard input: {error}"))?;
    if answer.trim() == "yes" {
        return Ok(true);
    }
    say("nothing was erased");
    Ok(false)
}

/// Invokes the function of the running system and answers with what it says; of an erasure with the
/// store's time as `storeSeconds`, where its clock was advanced.
///
/// # Errors
/// When nothing is running, or the function fails.
pub(crate) async fn ask(request: Value) -> Result<String, String> {
    let running = Running::read()?;
    let function = running.function(FUNCTION)?;
    interruption::reached(format!("`{function}` was invoked and has not answered"));
    let invoked = invoke(&running, function, Bytes::from(request.to_string())).await?;
    let body = String::from_utf8_lossy(&invoked.body).into_owned();
    if !invoked.failed {
        // The function has no store to ask, and times what it does by its machine's clock.
        let advanced = endpoint::advanced(&running.dynamodb).await;
        return Ok(advanced.map_or(body.clone(), |advanced| with_store_time(&body, advanced.now)));
    }
    let error: Value = serde_json::from_str(&body).unwrap_or_default();
    Err(error.get("errorMessage").and_then(Value::as_str).map_or(body, str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An erasure with a name may have died behind its last row: only the function can say whether
    /// it is done.
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
            // Nothing runs here that could be asked.
            ("Nobody", Some("n"), true, false, None),
            ("Rush", None, true, false, None),
            ("Rush", Some("n"), false, true, Some(Exit::Done)),
        ] {
            assert_eq!(erase(title, name, yes, dry_run).ok(), expected, "{title} {name:?} {yes}");
        }
    }

    /// Who asks for the same rows goes on with the same erasure, however they are written.
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
        // As the function takes names.
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{name}");
    }

    #[test]
    fn what_a_compaction_has_left_is_told() {
        for (answer, expected) in [
            (r#"{"compacted":{"postponedHours":0,"complete":true}}"#, None),
            (r#"{"compacted":{"postponedHours":1,"complete":true}}"#, Some("1 hour is as before")),
            (r#"{"compacted":{"postponedHours":0,"complete":false}}"#, Some("no time for")),
        ] {
            let left = left_by(answer);
            assert_eq!(left.is_some(), expected.is_some(), "{answer}");
            assert!(left.unwrap_or_default().contains(expected.unwrap_or_default()), "{answer}");
        }
    }

    /// Without the first flag version 2 takes the payload for base64; without the second it sends the
    /// event again when the function has worked for a minute.
    #[test]
    fn the_command_for_aws_sends_the_event_as_it_is_and_once() {
        let command = CompactArguments::augment_args(clap::Command::new("compact"));
        let help = command.get_after_help().unwrap().to_string();
        for flag in ["--cli-binary-format raw-in-base64-out", "--cli-read-timeout 0"] {
            assert!(help.contains(flag), "{help}");
        }
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
    fn flags_become_events() {
        let compact = |table: Option<&str>, age, nothing_is_archiving| {
            let table = OneOfAll::of(table);
            CompactArguments { table, age, nothing_is_archiving }.request().to_string()
        };
        assert_eq!(compact(None, None, false), r#"{"compact":{"nothingIsArchiving":false}}"#);
        for (age, nothing_is_archiving, is_right) in [
            (None, false, true),
            (Some(900), false, true),
            (Some(10), true, true),
            (Some(10), false, false),
        ] {
            let checked =
                CompactArguments { table: OneOfAll::default(), age, nothing_is_archiving }.check();
            assert_eq!(checked.is_ok(), is_right, "{age:?}");
            let said = checked.err().unwrap_or("--age 10: --nothing-is-archiving".to_owned());
            assert!(said.contains("--nothing-is-archiving") && !said.contains('{'), "{said}");
        }
        assert_eq!(
            compact(Some("movies"), None, true),
            r#"{"compact":{"ageSeconds":0,"nothingIsArchiving":true,"table":"movies"}}"#
        );
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
            (r#"{"a":{"S":"x"},"n":1}"#, "`a` is a document beside plain values"),
            (r#"{"a":["x"]}"#, "`a` is a document beside plain values"),
            (r#"{"a":{"X":"x"}}"#, "write such as"),
        ] {
            let said = request(Some(text), None).unwrap_err();
            assert!(said.starts_with("--equals `") && said.contains(expected), "{said}");
        }
        for text in ["pk", "=T", "pk="] {
            assert!(request(None, Some(text)).unwrap_err().contains("is not ATTRIBUTE=TEXT"));
        }
        let subject = |equals| erase(Some(equals), None).subject();
        assert!(subject("{}").unwrap_err().contains("every row: say which with --equals"));
        let none = erase(None, None).check().unwrap_err();
        assert!(none.contains("with --begins-with, such as pk=TENANT#7#"), "{none}");
        assert_eq!(erase(None, Some("titel=R")).words(), "has `titel` beginning with `R`");
    }
}
