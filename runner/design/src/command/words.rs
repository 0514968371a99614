//! Splitting of a command line into words, as in a POSIX shell, but without expansions.

use crate::command::CommandError;

/// Splits a command line into words.
pub(super) fn split(text: &str) -> Result<Vec<String>, CommandError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => quoted(&mut letters, word.get_or_insert_default())?,
            '"' => double_quoted(&mut letters, word.get_or_insert_default())?,
            '\\' => match letters.next() {
                None | Some('\n') => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            ';' | '&' | '|' | '<' | '>' => return Err(CommandError::Compound(letter)),
            letter if letter.is_whitespace() => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(letters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), CommandError> {
    for letter in letters {
        match letter {
            '\'' => return Ok(()),
            letter => word.push(letter),
        }
    }
    Err(CommandError::OpenQuote('\''))
}

fn double_quoted(letters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), CommandError> {
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Ok(()),
            '\\' => match letters.next() {
                Some('\n') => {}
                Some(escaped @ ('"' | '\\' | '$' | '`')) => word.push(escaped),
                Some(other) => word.extend(['\\', other]),
                None => break,
            },
            letter => word.push(letter),
        }
    }
    Err(CommandError::OpenQuote('"'))
}
