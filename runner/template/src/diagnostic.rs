//! Collects and formats the diagnostics of a template. A diagnostic contains the file, the source
//! line, the problem, and what to write instead.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
};

use crate::not_emulated::NotEmulated;
pub use crate::span::Span;

/// Maximum number of findings that are shown. Further findings are only counted.
const ERRORS_SHOWN_MAX: usize = 50;

/// Maximum number of findings in memory. The limit protects against a malicious template with
/// millions of errors.
const FINDINGS_MAX: usize = 1_000;

/// Maximum number of characters of a source line that are shown, so that the line fits into a
/// terminal. For a longer line, an excerpt around the location of the finding is shown.
const SOURCE_LINE_CHARS_MAX: usize = 120;

/// Maximum number of letters that differ between a name and a suggested name.
const SIMILAR_DISTANCE_MAX: usize = 2;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The template cannot be run.
    Error,
    /// The template runs, but probably not as intended.
    Warning,
}

/// A finding in a template. Its output has the format of the diagnostics of cargo and rustc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity of the finding.
    pub severity: Severity,
    /// The name of the check, for `Metadata.Weir.Accept`; `None` if the finding cannot be accepted.
    pub check: Option<&'static str>,
    /// The template's file name, as given by the caller.
    pub file: String,
    /// The line number, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// Width of the underline in characters, at least 1.
    pub width: usize,
    /// The source line without its line break.
    pub source_line: String,
    /// A description of the problem.
    pub message: String,
    /// Advice on what to write instead.
    pub help: String,
}

/// Returns the excerpt of a source line, and the start and width of the underline in it. An
/// ellipsis marks each end that was cut off.
fn visible_part(line: &str, column: usize, width: usize) -> (String, usize, usize) {
    let before = column.saturating_sub(1);
    let length = line.chars().count();
    let start = if length <= SOURCE_LINE_CHARS_MAX {
        0
    } else {
        // The excerpt begins some characters before the finding, so that its context is visible.
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
            // A tab has no fixed width. A space keeps the underline aligned.
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

/// All findings of a template that cannot be run, ordered by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// The findings that are shown, at most 50.
    pub shown: Vec<Diagnostic>,
    /// The number of findings that are not shown.
    pub more: usize,
}

impl Diagnostics {
    /// Returns the errors without the warnings, followed by the number of errors and warnings. The
    /// numbers come last, because a terminal shows the end of its output.
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
            write!(out, "\n\nfindings not shown: {}", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// The findings in a template, with the template's text.
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
    /// Creates an empty collection of findings for the text of `file`.
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

    /// Reads a part of the template that has no effect on this machine. Errors in it become
    /// warnings.
    pub(super) fn of_what_stops_nothing<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.stops_nothing.replace(true);
        let read = read();
        self.stops_nothing.set(before);
        read
    }

    /// Sets a flag: AWS may add names to the template that this crate does not know.
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
        // The same error may be found several times, for example once per function if the error is
        // in the globals.
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

    /// Reads a part of the template that does not run on this machine, only to find its errors and
    /// warnings. Its settings are not listed as not emulated. A value that is known only on AWS is
    /// not an error.
    pub(super) fn of_what_does_not_run<T>(&self, read: impl FnOnce() -> T) -> T {
        let listed = self.not_emulated.borrow().len();
        let before = self.runs_on_aws.replace(true);
        let read = read();
        self.runs_on_aws.set(before);
        self.not_emulated.borrow_mut().truncate(listed);
        read
    }

    /// Returns true while a part is read that runs only on AWS.
    pub(super) fn runs_on_aws(&self) -> bool {
        self.runs_on_aws.get()
    }

    /// Returns a source line without its line break. Lines are counted from 1. A line that does not
    /// exist is empty.
    pub fn source_line(&self, line: usize) -> &'t str {
        self.text.lines().nth(line.saturating_sub(1)).unwrap_or_default()
    }

    /// Returns the source lines beginning with a line, without their line breaks. Lines are counted
    /// from 1.
    pub fn lines_from(&self, line: usize) -> impl Iterator<Item = &'t str> {
        self.text.lines().skip(line.saturating_sub(1))
    }

    /// Returns the number of source lines.
    pub(super) fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// Returns true if a plain scalar with this text begins at this location. At the location of a
    /// quoted scalar, a block scalar or an alias, the source has a different text.
    pub(super) fn is_plain(&self, at: Span, text: &str) -> bool {
        let line = self.source_line(at.line);
        let before = at.column.saturating_sub(1);
        let is_text = line.chars().take(before).collect::<String>().trim_end().ends_with("!!str");
        !is_text && line.chars().skip(before).collect::<String>().starts_with(text)
    }

    /// Returns true if the scalar at this location is in quotes.
    pub(super) fn is_quoted(&self, at: Span) -> bool {
        let first = self.source_line(at.line).chars().nth(at.column.saturating_sub(1));
        matches!(first, Some('"' | '\''))
    }

    /// Returns true if the maximum number of findings in memory is reached.
    pub(super) fn is_full(&self) -> bool {
        self.diagnostics.borrow().len() >= FINDINGS_MAX
    }

    /// Returns true if an error was added.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.borrow().iter().any(|found| found.severity == Severity::Error)
    }

    /// Returns all findings, ordered by line. If not all findings can be shown, errors have
    /// priority over warnings.
    pub fn into_parts(self) -> (Diagnostics, Vec<NotEmulated>) {
        let mut shown = self.diagnostics.into_inner();
        shown.sort_by_key(|found| (found.line, found.column));
        let more = shown.len().saturating_sub(ERRORS_SHOWN_MAX);
        if more > 0 {
            // If not all findings can be shown, errors have priority over warnings.
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

/// Returns true if two resources have the same setting from SAM's globals. The setting is then
/// listed once, as a setting of the globals.
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
        // Short names have a lower limit, because otherwise any short name would be similar.
        .filter(|(distance, _)| *distance <= SIMILAR_DISTANCE_MAX.min(name.chars().count() / 3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Formats names for a message, such as `a`, `b` and `c`. Duplicates are removed, and the order is
/// preserved.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: BTreeSet<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    let quoted: Vec<String> = quoted.into_iter().collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// Returns a number with its noun. The noun is `one` for the number 1, and `many` for other
/// numbers.
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
