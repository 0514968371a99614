//! The position of a word of a command in its file, so that a message points to the right line.

use template::Span;
use template::diagnostic::Findings;

/// The maximum number of lines of a command that are searched.
const LINES_MAX: usize = 100;

/// Returns the position of the first occurrence of a word in the file, from `at`, where the command
/// begins. Returns `at` if the word is not found, for example because it is quoted differently.
/// `command` is the text of the command.
#[must_use]
pub fn place_of(findings: &Findings<'_>, at: Span, command: &str, word: &str) -> Span {
    let single_spaces = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let command = single_spaces(command);
    for (line, source) in findings.lines_from(at.line).take(LINES_MAX).enumerate() {
        let indent = if line == 0 { at.column.saturating_sub(1) } else { 0 };
        let start = source.char_indices().nth(indent).map_or(source.len(), |(start, _)| start);
        let rest = source.get(start..).unwrap_or_default();
        // The first line that is not part of the command is after the end of the command. Line 0 is
        // exempt, because it may also contain text after the command.
        if line > 0 && !command.contains(&single_spaces(rest)) {
            break;
        }
        if let Some(found) = find(rest, word) {
            let before = rest.get(..found).unwrap_or_default().chars().count();
            let column = indent + before + 1;
            return Span { line: at.line + line, column, width: word.chars().count() };
        }
    }
    at
}

/// Returns the offset of the first occurrence of a word that is not part of a longer word.
fn find(text: &str, word: &str) -> Option<usize> {
    if word.is_empty() {
        return None;
    }
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    let is_whole = |at: &usize| {
        let before = text.get(..*at).and_then(|before| before.chars().next_back());
        let behind = text.get(at + word.len()..).and_then(|behind| behind.chars().next());
        !before.is_some_and(is_part) && !behind.is_some_and(is_part)
    };
    text.match_indices(word).map(|(at, _)| at).find(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_its_line_and_column() {
        let text = "a: >-\n  aws dynamodb query --limit-x 1\n\n  --limit 5 'é :s'\nb: :t\n";
        let command = "aws dynamodb query --limit-x 1\n--limit 5 'é :s'";
        let findings = Findings::new("a.yaml", text);
        let at = Span { line: 2, column: 3, width: 9 };
        for (word, line, column, width) in
            [("query", 2, 16, 5), ("--limit", 4, 3, 7), (":s", 4, 16, 2), (":t", 2, 3, 9)]
        {
            let found = place_of(&findings, at, command, word);
            assert_eq!((found.line, found.column, found.width), (line, column, width), "{word}");
        }
    }
}
