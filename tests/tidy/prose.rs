//! Checks of the prose of all pages except ARCHITECTURE.md: the statement of its readers, the
//! length of sentences and paragraphs, banned words, and the form of the changelog and the
//! decisions.
//!
//! Code blocks are not prose, and in a table's cells only the words are checked. `links` checks
//! links.

use std::collections::BTreeMap;

use crate::{assert_none, files, read};

const WORDS_OF_A_SENTENCE: usize = 35;
const SENTENCES_OF_A_PARAGRAPH: usize = 6;
const LINES_OF_THE_README: usize = 120;
const LINES_OF_THE_CHANGELOG: usize = 80;
const WORDS_OF_A_DECISION: usize = 650;

/// Pages that are not rewritten yet, with the number of complaints about each. A number may only
/// decrease, and a page without complaints must be removed from the list.
const NOT_REWRITTEN: &[(&str, usize)] = &[];

/// Phrases that hide the actor, or that a reader would not search for, and their replacements.
const BANNED: &[(&str, &str)] = &[
    ("somebody", "the client, the operator, another process"),
    ("nobody", "no client, no process"),
    ("anybody", "a client, everyone"),
    ("whoever", "the client that, the process that"),
    ("anew", "again, from the beginning"),
    ("gone on with", "resumed"),
    ("goes on with", "continues, resumes"),
    ("hold up", "block, pause"),
    ("holds up", "blocks, pauses"),
    ("held up", "blocked, paused"),
    ("let go of", "discard, release"),
    ("lets go of", "discards, releases"),
    ("for good", "permanently"),
    ("given up", "discarded, aborted, closed"),
    ("at work", "running, in progress"),
    ("is told", "is reported, is notified"),
    ("looked at", "read, checked"),
    ("looked whether", "checked whether"),
    ("said again", "run again, repeated"),
    ("said otherwise", "by default"),
    ("worked off", "processed"),
    ("stands in the archive", "is archived"),
    ("of one's own", "own"),
];

/// A paragraph: text between blank lines, headings, tables and code. Each list item is a paragraph.
struct Paragraph {
    line: usize,
    text: String,
}

/// Returns the pages that these rules apply to.
fn pages() -> Vec<String> {
    let is_page = |path: &String| path.ends_with(".md") && path != "ARCHITECTURE.md";
    files().into_iter().filter(is_page).collect()
}

/// Returns the lines outside of code blocks, with their numbers from 1.
fn lines_without_code(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        // A fence ends a paragraph.
        (!is_code).then_some((index + 1, if is_fence { "" } else { line }))
    })
}

fn is_list_item(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || digits.len() < line.len() && digits.starts_with(". ")
}

fn paragraphs(page: &str) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    for (number, line) in lines_without_code(page) {
        let text = line.trim();
        if text.is_empty() || text.starts_with(['#', '|', '!']) {
            is_open = false;
            continue;
        }
        match paragraphs.last_mut().filter(|_| is_open && !is_list_item(line)) {
            Some(paragraph) => {
                paragraph.text.push(' ');
                paragraph.text.push_str(text);
            }
            None => paragraphs.push(Paragraph { line: number, text: text.to_owned() }),
        }
        is_open = true;
    }
    paragraphs
}

/// Returns a text in which code between backticks is replaced with one word, and a link with its
/// text.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (index, piece) in text.split('`').enumerate() {
        plain.push_str(if index % 2 == 0 { piece } else { "code" });
    }
    while let Some((before, rest)) = plain.split_once("](") {
        let behind = rest.split_once(')').map_or("", |(_, behind)| behind);
        plain = format!("{before}{behind}");
    }
    plain
}

/// Returns the sentences of a plain text. A full stop, a question mark or an exclamation mark ends
/// a sentence if white space follows.
fn sentences(plain: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut rest = plain;
    while let Some(end) = rest.match_indices(['.', '?', '!']).find_map(|(at, mark)| {
        let behind = rest[at + mark.len()..].trim_start_matches([')', '"', '*']);
        behind.starts_with(' ').then(|| rest.len() - behind.len())
    }) {
        let (sentence, behind) = rest.split_at(end);
        sentences.push(sentence);
        rest = behind;
    }
    sentences.push(rest);
    sentences.retain(|sentence| words(sentence) > 0);
    sentences
}

fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

fn long_sentences_and_paragraphs(page: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for Paragraph { line, text } in paragraphs(page) {
        let plain = plain(&text);
        // The number of a list item does not end a sentence.
        let plain = plain.split_once(". ").filter(|_| is_list_item(&plain)).map_or(
            plain.as_str(),
            |(number, rest)| if words(number) == 1 { rest } else { plain.as_str() },
        );
        let sentences = sentences(plain);
        if sentences.len() > SENTENCES_OF_A_PARAGRAPH {
            complaints.push(format!("{line}: a paragraph of {} sentences", sentences.len()));
        }
        for sentence in sentences {
            let count = words(sentence);
            if count > WORDS_OF_A_SENTENCE {
                let begin: String = sentence.trim().chars().take(50).collect();
                complaints.push(format!("{line}: a sentence of {count} words: {begin}…"));
            }
        }
    }
    complaints
}

fn banned_phrases(page: &str) -> Vec<String> {
    let mut text = String::new();
    for (_, line) in lines_without_code(page) {
        text.push_str(&plain(line).to_lowercase());
        text.push(' ');
    }
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut complaints = Vec::new();
    for (phrase, instead) in BANNED {
        let count = text.match_indices(phrase).filter(|(at, _)| {
            let (before, behind) = (&text[..*at], &text[at + phrase.len()..]);
            !is_letter(before.chars().next_back()) && !is_letter(behind.chars().next())
        });
        complaints.extend(count.map(|_| format!("`{phrase}`: write {instead}")));
    }
    complaints
}

/// Returns the missing part of a page's first paragraph: the readers, or what they can do after
/// reading.
fn readers(page: &str) -> Option<String> {
    let paragraphs = paragraphs(page);
    let first = paragraphs.first().map_or("", |paragraph| paragraph.text.as_str());
    let is_good = first.starts_with("For ") && first.contains("fterwards you");
    (!is_good).then(|| "begin with `For …`, and `Afterwards you …`".to_owned())
}

/// Returns the complaints about the form of a decision: its four sections must be in order, and it
/// must be short.
fn form_of_a_decision(page: &str) -> Vec<String> {
    let headings: Vec<_> = page.lines().filter(|line| line.starts_with("## ")).collect();
    let mut complaints = Vec::new();
    if headings != ["## Context", "## Options", "## Decision", "## Consequences"] {
        complaints.push(format!("has the sections {headings:?}"));
    }
    let words = paragraphs(page).iter().map(|paragraph| words(&paragraph.text)).sum::<usize>();
    if words > WORDS_OF_A_DECISION {
        complaints.push(format!("has {words} words of prose"));
    }
    complaints
}

fn form_of_the_changelog(page: &str) -> Vec<String> {
    let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    let mut complaints = Vec::new();
    let mut is_list = false;
    for (number, line) in lines_without_code(page) {
        if let Some(kind) = line.strip_prefix("### ").filter(|kind| !kinds.contains(kind)) {
            complaints.push(format!("{number}: `{kind}` is none of {kinds:?}"));
        }
        if is_list && !line.is_empty() && !line.starts_with(['-', '#']) {
            complaints.push(format!("{number}: an entry of several lines"));
        }
        is_list = line.starts_with("- ") || is_list && !line.is_empty();
        if line.starts_with("- ") && sentences(&plain(&line[2..])).len() > 2 {
            complaints.push(format!("{number}: an entry of more than two sentences"));
        }
    }
    if page.lines().count() > LINES_OF_THE_CHANGELOG {
        complaints.push(format!("has {} lines", page.lines().count()));
    }
    complaints
}

fn complaints_about(path: &str, page: &str) -> Vec<String> {
    let mut complaints = long_sentences_and_paragraphs(page);
    complaints.extend(banned_phrases(page));
    match path {
        "README.md" if page.lines().count() > LINES_OF_THE_README => {
            complaints.push(format!("has {} lines", page.lines().count()));
        }
        "README.md" => {}
        "CHANGELOG.md" => complaints.extend(form_of_the_changelog(page)),
        path if path.starts_with("docs/decisions/") => complaints.extend(form_of_a_decision(page)),
        _ => complaints.extend(readers(page)),
    }
    complaints
}

#[test]
fn pages_are_plain() {
    let pages = pages();
    assert!(pages.len() > 30, "{}", pages.len());
    let mut allowed: BTreeMap<&str, usize> = NOT_REWRITTEN.iter().copied().collect();
    let mut complaints = Vec::new();
    for path in &pages {
        let found = complaints_about(path, &read(path));
        match allowed.remove(path.as_str()) {
            Some(count) if count == found.len() && count > 0 => {}
            Some(count) if found.len() < count => {
                complaints.push(format!(
                    "{path}: {} in the list, lower it to {}",
                    count,
                    found.len()
                ));
            }
            _ => complaints.extend(found.iter().map(|complaint| format!("{path}:{complaint}"))),
        }
    }
    complaints.extend(allowed.keys().map(|path| format!("{path}: in the list, but not a page")));
    assert_none("these pages are not plain", &complaints);
}

/// Goal: each rule reports its own violations, and nothing else.
#[test]
fn each_rule_finds_what_it_is_for() {
    let page = |prose: &str| format!("# T\n\nFor a tester. Afterwards you know.\n\n{prose}\n");
    let of = |prose: &str| complaints_about("docs/page.md", &page(prose)).len();
    let long = "word ".repeat(WORDS_OF_A_SENTENCE + 1);
    assert_eq!(of(&long), 1);
    assert_eq!(of(&format!("{} end.", "word ".repeat(WORDS_OF_A_SENTENCE - 1))), 0);
    assert_eq!(of(&format!("```\n{long}\n```")), 0);
    assert_eq!(of(&format!("| a | {long} |\n|---|---|")), 0);
    assert_eq!(of(&"One word. ".repeat(SENTENCES_OF_A_PARAGRAPH + 1)), 1);
    assert_eq!(of(&"- One word.\n".repeat(SENTENCES_OF_A_PARAGRAPH + 1)), 0);
    assert_eq!(of(&"1. One. Two.\n".repeat(SENTENCES_OF_A_PARAGRAPH + 1)), 0);
    assert_eq!(of("Nobody, and somebody\nelse."), 2);
    assert_eq!(of("| it is held\n| up |"), 0);
    assert_eq!(of("A write is held\nup. `nobody` is code."), 1);
    assert_eq!(of("Renewed."), 0);
    assert_eq!(complaints_about("docs/page.md", "# T\n\nText.").len(), 1);
    let decision = "# T\n\n## Context\n\n## Options\n\n## Decision\n\n## Consequences\n";
    assert_eq!(complaints_about("docs/decisions/1.md", decision).len(), 0);
    assert_eq!(complaints_about("docs/decisions/1.md", "# T\n\n## Context\n").len(), 1);
    let log = |text: &str| complaints_about("CHANGELOG.md", text).len();
    assert_eq!(log("# C\n\n### Added\n\n- One.\n- Two.\n"), 0);
    assert_eq!(log("# C\n\n### New\n\n- One\n  and more.\n- A. B. C.\n"), 3);
    assert_eq!(log(&"\n".repeat(LINES_OF_THE_CHANGELOG + 1)), 1);
    assert_eq!(complaints_about("README.md", &"\n".repeat(LINES_OF_THE_README + 1)).len(), 1);
}
