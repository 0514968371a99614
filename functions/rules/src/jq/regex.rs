//! Regular expressions that have the same meaning in jq's regex library and in Rust's.
//!
//! jq uses Oniguruma with its Perl syntax. A pattern is refused if the two libraries may interpret
//! it differently. The module `patterns` matches strings.

use super::stop::{Flow, Stop};

/// A compiled pattern and its restrictions.
pub(super) struct Regex {
    pub(super) regex: regex_lite::Regex,
    pub(super) names: Vec<Option<String>>,
    pub(super) is_global: bool,
    pub(super) skips_empty: bool,
    /// Whether the matched string must be ASCII.
    pub(super) needs_ascii: bool,
    /// Whether a string that ends with a line break is refused.
    pub(super) has_end: bool,
}

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// When the pattern or a flag is not available.
    pub(super) fn compile(pattern: &str, flags: &str) -> Flow<Self> {
        let checked = Checked::of(pattern)?;
        let (mut is_global, mut skips_empty, mut ignores_case) = (false, false, false);
        for flag in flags.chars() {
            match flag {
                'g' => is_global = true,
                'n' => skips_empty = true,
                'i' => ignores_case = true,
                'x' | 's' | 'l' | 'p' => {
                    let reason = format!("the flag `{flag}` of patterns is not available");
                    return Err(Stop::Refused(reason));
                }
                _ => {
                    return Err(Stop::error(format!("{flags} is not a valid modifier string")));
                }
            }
        }
        if ignores_case && !pattern.is_ascii() {
            return Err(Stop::refused("the flag `i` is available only for ASCII patterns"));
        }
        let mut builder = regex_lite::RegexBuilder::new(pattern);
        let regex = builder.case_insensitive(ignores_case).build().map_err(|error| {
            Stop::refused(format!("the pattern `{pattern}` is not available: {error}"))
        })?;
        let names = regex.capture_names().skip(1).map(|name| name.map(str::to_owned)).collect();
        let needs_ascii = checked.needs_ascii || ignores_case;
        let has_end = checked.has_end;
        Ok(Self { regex, names, is_global, skips_empty, needs_ascii, has_end })
    }
}

/// The properties of a pattern that restrict the strings it may match.
#[derive(Default)]
struct Checked {
    needs_ascii: bool,
    has_end: bool,
}

impl Checked {
    /// Checks that both libraries interpret a pattern in the same way.
    fn of(pattern: &str) -> Flow<Self> {
        let mut checked = Self::default();
        let mut rest = pattern;
        let mut can_repeat = false;
        while let Some(character) = rest.chars().next() {
            let tail = rest.get(character.len_utf8()..).unwrap_or("");
            (rest, can_repeat) = match character {
                '\\' => (checked.escape(tail, pattern)?, true),
                '[' => (checked.class(tail, pattern)?, true),
                '(' => (group(tail, pattern)?, false),
                '{' if can_repeat => (counted(tail, pattern)?, false),
                '*' | '+' | '?' if can_repeat => (tail.strip_prefix('?').unwrap_or(tail), false),
                '{' | '*' | '+' | '?' | '}' | ']' => return Err(not_available(pattern)),
                '$' => {
                    checked.has_end = true;
                    (tail, false)
                }
                '^' | '|' => (tail, false),
                _ => (tail, true),
            };
        }
        Ok(checked)
    }

    fn escape<'p>(&mut self, tail: &'p str, pattern: &str) -> Flow<&'p str> {
        let escaped = tail.chars().next().ok_or_else(|| not_available(pattern))?;
        match escaped {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'b' | 'B' => self.needs_ascii = true,
            'n' | 't' | 'r' => {}
            escaped if escaped.is_ascii_punctuation() && !matches!(escaped, '<' | '>') => {}
            _ => return Err(not_available(pattern)),
        }
        Ok(tail.get(1..).unwrap_or(""))
    }

    /// Checks `[...]`: characters, ASCII ranges, and classes such as `\d`.
    fn class<'p>(&mut self, tail: &'p str, pattern: &str) -> Flow<&'p str> {
        let mut rest = tail.strip_prefix('^').unwrap_or(tail);
        let mut is_first = true;
        loop {
            let character = rest.chars().next().ok_or_else(|| not_available(pattern))?;
            let tail = rest.get(character.len_utf8()..).unwrap_or("");
            let doubled = tail.starts_with(character) && matches!(character, '&' | '-' | '~');
            rest = match character {
                ']' if !is_first => return Ok(tail),
                '\\' if tail.starts_with(['b', 'B']) => return Err(not_available(pattern)),
                '\\' => self.escape(tail, pattern)?,
                ']' | '[' => return Err(not_available(pattern)),
                _ if doubled => return Err(not_available(pattern)),
                _ => tail,
            };
            is_first = false;
        }
    }
}

fn not_available(pattern: &str) -> Stop {
    Stop::Refused(format!(
        "the pattern `{pattern}` uses a construct that is not available; docs/transforms.md lists the available ones"
    ))
}

/// Checks `(`, `(?:` and `(?<name>`.
fn group<'p>(tail: &'p str, pattern: &str) -> Flow<&'p str> {
    let Some(rest) = tail.strip_prefix('?') else { return Ok(tail) };
    if let Some(rest) = rest.strip_prefix(':') {
        return Ok(rest);
    }
    let name = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    match name {
        Some((name, rest))
            if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
        {
            Ok(rest)
        }
        _ => Err(not_available(pattern)),
    }
}

/// Checks `{n}`, `{n,}` and `{n,m}`.
fn counted<'p>(tail: &'p str, pattern: &str) -> Flow<&'p str> {
    let (bounds, rest) = tail.split_once('}').ok_or_else(|| not_available(pattern))?;
    let (least, most) = bounds.split_once(',').unwrap_or((bounds, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if least.is_empty() || !digits(least) || !digits(most) {
        return Err(not_available(pattern));
    }
    if !bounds.contains(',') && rest.starts_with('?') {
        return Err(not_available(pattern));
    }
    Ok(rest.strip_prefix('?').unwrap_or(rest))
}
