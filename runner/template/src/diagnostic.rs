//! Diagnostics of a template: the file, the source line, the problem, and what to write instead.
//! This module collects and formats them.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
};

use crate::not_emulated::NotEmulated;
pub use crate::span::Span;

/// Maximum number of findings to show. The reader fixes these first; the remaining ones are only
/// counted.
const ERRORS_SHOWN_MAX: usize = 50;

/// Maximum number of findings in memory, because a hostile text may have a million mistakes.
const FINDINGS_MAX: usize = 1_000;

/// Maximum length of a shown source line, so that it fits a terminal. For a longer line, an excerpt
/// around the place is shown.
const SOURCE_LINE_CHARS_MAX: usize = 120;

/// Maximum number of letters in which a suggested name differs.
const SIMILAR_DISTANCE_MAX: usize = 2;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The template cannot be run.
    Error,
    /// The template runs, but probably not as intended.
    Warning,
}

/// One finding in a template, formatted like those of cargo and rustc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The name of the check, for `Metadata.Weir.Accept`; `None` if the finding cannot be accepted.
    pub check: Option<&'static str>,
    /// The template's name as the caller gave it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Width of the underline in characters, at least 1.
    pub width: usize,
    /// The line itself, without its end.
    pub source_line: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// Returns the excerpt of a source line, and the place of the underline. An ellipsis stands where the line
/// was cut.
fn visible_part(line: &str, column: usize, width: usize) -> (String, usize, usize) {
    let before = column.saturating_sub(1);
    let length = line.chars().count();
    let start = if length <= SOURCE_LINE_CHARS_MAX {
        0
    } else {
        // Keep some text before the place as context.
        before.saturating_sub(SOURCE_LINE_CHARS_MAX / 3)
    };
    let last = start.saturating_add(SOURCE_LINE_CHARS_MAX).saturating_sub(1);
    let is_cut = |place: usize| {
        (place == start && start > 0) || (place == last && last.saturating_add(1) < length)
    };
    let part = line.chars().enumerate().skip(start).take(SOURCE_LINE_CHARS_MAX);
    let shown: String = part
        .map(|(place, character)| match character {
            _ if is_cut(place) => '…',
            // A tab has no fixed width. With a space, the underline stays below its text.
            '\t' => ' ',
            character => character,
        })
        .collect();
    let indent = before - start.min(before);
    let marks = width.clamp(1, SOURCE_LINE_CHARS_MAX.saturating_sub(indent).max(1));
    (shown.trim_end().to_owned(), indent, marks)
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let (shown, indent, marks) = visible_part(&self.source_line, self.column, self.width);
        match self.check {
            Some(check) => writeln!(out, "{severity}[{check}]: {}", self.message)?,
            None => writeln!(out, "{severity}: {}", self.message)?,
        }
        writeln!(out, "{margin}--> {}:{}:{}", self.file, self.line, self.column)?;
        writeln!(out, "{margin} |")?;
        writeln!(out, "{number} | {shown}")?;
        writeln!(out, "{margin} | {}{}", " ".repeat(indent), "^".repeat(marks))?;
        write!(out, "{margin} = help: {}", self.help)
    }
}

/// All findings of a template that cannot be run, by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// The findings to show, at most 50.
    pub shown: Vec<Diagnostic>,
    /// The number of further findings.
    pub more: usize,
}

impl Diagnostics {
    /// Returns the errors without the warnings, and at the end the number of both. The end of a
    /// text is what a terminal still shows.
    #[must_use]
    pub fn why_not_run(&self) -> String {
        let is_error = |found: &&Diagnostic| found.severity == Severity::Error;
        let errors: Vec<String> =
            self.shown.iter().filter(is_error).map(ToString::to_string).collect();
        let warnings = self.shown.len() - errors.len();
        let mut counts = vec![counted(errors.len(), "error", "errors")];
        if warnings > 0 {
            counts.push(counted(warnings, "warning", "warnings"));
        }
        if self.more > 0 {
            counts.push(format!("{} more", self.more));
        }
        let mut text = errors.join("\n\n");
        if counts.len() > 1 || errors.len() > 1 {
            text.push_str(&format!("\n\n{}", counts.join(", ")));
        }
        if warnings > 0 {
            text.push_str("; `weir check` shows the warnings too");
        }
        text
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.shown.iter().enumerate() {
            if index > 0 {
                write!(out, "\n\n")?;
            }
            write!(out, "{diagnostic}")?;
        }
        if self.more > 0 {
            write!(out, "\n\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// The template's text, and its findings so far.
pub struct Findings<'t> {
    file: &'t str,
    text: &'t str,
    diagnostics: RefCell<Vec<Diagnostic>>,
    not_emulated: RefCell<Vec<NotEmulated>>,
    runs_on_aws: Cell<bool>,
    stops_nothing: Cell<bool>,
    is_open: Cell<bool>,
}

impl<'t> Findings<'t> {
    /// Returns an empty collection for the text of `file`.
    pub fn new(file: &'t str, text: &'t str) -> Findings<'t> {
        Findings {
            file,
            text,
            diagnostics: RefCell::new(Vec::new()),
            not_emulated: RefCell::new(Vec::new()),
            runs_on_aws: Cell::new(false),
            stops_nothing: Cell::new(false),
            is_open: Cell::new(false),
        }
    }

    /// Returns the name of the file.
    pub(super) fn file(&self) -> &'t str {
        self.file
    }

    /// Adds an error.
    pub fn error(&self, at: Span, message: impl Into<String>, help: impl Into<String>) {
        let severity = match self.stops_nothing.get() {
            true => Severity::Warning,
            false => Severity::Error,
        };
        self.add(severity, None, at, message.into(), help.into());
    }

    /// Reads a part that has no effect here. Its errors become warnings.
    pub(super) fn of_what_stops_nothing<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.stops_nothing.replace(true);
        let read = read();
        self.stops_nothing.set(before);
        read
    }

    /// Records that AWS may add names to the template that this crate does not know.
    pub(super) fn opens(&self) {
        self.is_open.set(true);
    }

    /// Returns true if AWS may add names to the template that this crate does not know.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Adds a warning.
    pub(super) fn warning(&self, at: Span, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Warning, None, at, message.into(), help.into());
    }

    /// Adds a warning of a named check.
    pub fn lint(
        &self,
        check: &'static str,
        at: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Warning, Some(check), at, message.into(), help.into());
    }

    fn add(
        &self,
        severity: Severity,
        check: Option<&'static str>,
        at: Span,
        message: String,
        help: String,
    ) {
        if self.is_full() {
            return;
        }
        let source_line = self.source_line(at.line).to_owned();
        let rest = source_line.trim_end().chars().count().saturating_sub(at.column - 1);
        let diagnostic = Diagnostic {
            severity,
            check,
            file: self.file.to_owned(),
            line: at.line,
            column: at.column,
            width: at.width.clamp(1, rest.max(1)),
            source_line,
            message,
            help,
        };
        // The same mistake may be found more than once, for example a mistake in Globals for each
        // function.
        let mut diagnostics = self.diagnostics.borrow_mut();
        if !diagnostics.contains(&diagnostic) {
            diagnostics.push(diagnostic);
        }
    }

    /// Adds a setting that the local runner does not emulate.
    pub(super) fn not_emulated(&self, entry: NotEmulated) {
        let mut entries = self.not_emulated.borrow_mut();
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }

    /// Reads a part that does not run here, only for its errors and warnings. Its settings are not
    /// listed as not emulated, and a value that only AWS knows is no error.
    pub(super) fn of_what_does_not_run<T>(&self, read: impl FnOnce() -> T) -> T {
        let listed = self.not_emulated.borrow().len();
        let before = self.runs_on_aws.replace(true);
        let read = read();
        self.runs_on_aws.set(before);
        self.not_emulated.borrow_mut().truncate(listed);
        read
    }

    /// Returns true while a part that runs only on AWS is read.
    pub(super) fn runs_on_aws(&self) -> bool {
        self.runs_on_aws.get()
    }

    /// Returns the text of a line without its end. Lines count from 1; a line that does not exist
    /// is empty.
    pub fn source_line(&self, line: usize) -> &'t str {
        self.text.lines().nth(line.saturating_sub(1)).unwrap_or_default()
    }

    /// Returns the texts of the lines from a line on, each without its end. Lines count from 1.
    pub fn lines_from(&self, line: usize) -> impl Iterator<Item = &'t str> {
        self.text.lines().skip(line.saturating_sub(1))
    }

    /// Returns the number of lines.
    pub(super) fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// Returns true if a plain scalar with this text is at this place. A quoted scalar begins with
    /// a quote there, a block with its indicator, and an alias with its name.
    pub(super) fn is_plain(&self, at: Span, text: &str) -> bool {
        let line = self.source_line(at.line);
        let before = at.column.saturating_sub(1);
        let is_text = line.chars().take(before).collect::<String>().trim_end().ends_with("!!str");
        !is_text && line.chars().skip(before).collect::<String>().starts_with(text)
    }

    /// Returns true if the scalar at this place is in quotes.
    pub(super) fn is_quoted(&self, at: Span) -> bool {
        let first = self.source_line(at.line).chars().nth(at.column.saturating_sub(1));
        matches!(first, Some('"' | '\''))
    }

    /// Returns true if no more findings are kept.
    pub(super) fn is_full(&self) -> bool {
        self.diagnostics.borrow().len() >= FINDINGS_MAX
    }

    /// Returns true if an error was added.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.borrow().iter().any(|found| found.severity == Severity::Error)
    }

    /// Returns all findings in the order of their lines. If there are too many to show, errors have
    /// priority.
    pub fn into_parts(self) -> (Diagnostics, Vec<NotEmulated>) {
        let mut shown = self.diagnostics.into_inner();
        shown.sort_by_key(|found| (found.line, found.column));
        let more = shown.len().saturating_sub(ERRORS_SHOWN_MAX);
        if more > 0 {
            // If not all findings can be shown, errors have priority.
            shown.sort_by_key(|found| found.severity == Severity::Warning);
            shown.truncate(ERRORS_SHOWN_MAX);
            shown.sort_by_key(|found| (found.line, found.column));
        }
        let mut not_emulated = self.not_emulated.into_inner();
        not_emulated.sort_by(|left, right| {
            let key = |entry: &NotEmulated| (entry.at, entry.property.clone());
            key(left).cmp(&key(right))
        });
        not_emulated.dedup_by(same_in_globals);
        (Diagnostics { shown, more }, not_emulated)
    }
}

/// Returns true if two resources have the same setting from SAM's globals. Such a setting is listed
/// once, as that of the globals.
fn same_in_globals(later: &mut NotEmulated, first: &mut NotEmulated) -> bool {
    let Some(section) = first.kind.strip_prefix("AWS::Serverless::") else { return false };
    let is_same = (later.at, &later.property, &later.kind, &later.instead)
        == (first.at, &first.property, &first.kind, &first.instead);
    if is_same {
        first.resource = format!("Globals.{section}");
    }
    is_same
}

/// Returns the known name that is most similar to `name`; `None` if no name is similar enough.
pub fn similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&lower, &candidate.to_lowercase()), candidate))
        // The limit is lower for short names, because otherwise every name would be similar.
        .filter(|(distance, _)| *distance <= SIMILAR_DISTANCE_MAX.min(name.chars().count() / 3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Formats names for a message, such as `a`, `b` and `c`. Each name occurs once, and the order is
/// kept.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: BTreeSet<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    let quoted: Vec<String> = quoted.into_iter().collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// Returns an integer and the word for what it counts: `one` if the integer is 1, otherwise `many`.
#[must_use]
pub fn counted(number: impl fmt::Display, one: &str, many: &str) -> String {
    let number = number.to_string();
    let what = if number == "1" { one } else { many };
    format!("{number} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_distinguish_one_and_many() {
        for (text, expected) in [
            (counted(0_u64, "item", "items"), "0 items"),
            (counted(1_usize, "item", "items"), "1 item"),
            (counted(1_i64, "item is", "items are"), "1 item is"),
            (counted(11_u32, "item", "items"), "11 items"),
        ] {
            assert_eq!(text, expected);
        }
    }
}
