//! A check of error types: no crate uses `Result<_, String>`, because a typed error shows what the
//! caller must do.

use std::collections::BTreeMap;

use crate::imports::{tokens, without_tests};
use crate::{assert_none, files, read};

/// Counts the types `Result<_, String>` outside of tests.
fn text_errors(text: &str) -> usize {
    let tokens = without_tests(&tokens(text));
    let is_result = |place: &usize| tokens[*place] == "Result" && tokens[*place + 1] == "<";
    let places = (0..tokens.len().saturating_sub(1)).filter(is_result);
    places
        .filter(|place| last_argument(&tokens[place + 1..]).is_some_and(|it| it == ["String"]))
        .count()
}

/// Returns the last generic argument if there are several; `tokens` begins with the `<` before
/// them.
fn last_argument(tokens: &[String]) -> Option<&[String]> {
    let (mut depth, mut begin) = (0_usize, None);
    for (place, token) in tokens.iter().enumerate() {
        let is_arrow = place > 0 && tokens[place - 1] == "-";
        match token.as_str() {
            "<" | "(" | "[" => depth += 1,
            ">" if is_arrow => {}
            ">" | ")" | "]" if depth == 1 => return begin.map(|begin| &tokens[begin..place]),
            ">" | ")" | "]" => depth -= 1,
            // If arguments are on several lines, rustfmt ends the last line with a comma, which
            // begins no argument.
            "," if depth == 1 && tokens.get(place + 1).is_some_and(|next| next == ">") => {
                return begin.map(|begin| &tokens[begin..place]);
            }
            "," if depth == 1 => begin = Some(place + 1),
            _ => {}
        }
    }
    None
}

#[test]
fn no_crate_returns_to_errors_that_are_texts() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in files() {
        let Some((krate, file)) = path.split_once("/src/") else { continue };
        let is_test =
            file.split('/').any(|part| part.starts_with("test") || part.ends_with("tests.rs"));
        if !is_test && file.ends_with(".rs") {
            *found.entry(krate.to_owned()).or_default() += text_errors(&read(&path));
        }
    }
    let is_wrong = |(krate, count): (String, usize)| {
        (count > 0).then(|| {
            format!("{krate}: {count}; return an enum, such as `client::failure::Failure`")
        })
    };
    let complaints: Vec<_> = found.into_iter().filter_map(is_wrong).collect();
    assert_none("`Result<_, String>` outside of tests", &complaints);
}

#[test]
fn errors_that_are_texts_are_counted() {
    for (text, expected) in [
        ("fn f() -> Result<u8, String> {}", 1),
        ("fn f() -> std::result::Result<Vec<String>, String> {}", 1),
        ("fn f() -> Result<\n    Box<dyn Fn(u8, u8) -> u8>,\n    String,\n> {}", 1),
        ("type A = Result<Result<u8, String>, String>;", 2),
        ("fn f() -> Result<String> {}\nfn g() -> Result<Option<String>, Failure> {}", 0),
        ("// Result<u8, String>\nconst A: &str = \"Result<u8, String>\";", 0),
        ("#[cfg(test)]\nmod tests { fn f() -> Result<u8, String> {} }", 0),
    ] {
        assert_eq!(text_errors(text), expected, "{text}");
    }
}
