//! Writes and parses values as JSON, as jq does.

use std::fmt::Write as _;
use std::sync::Arc;

use super::number::Num;
use super::value::{Array, DEPTH_MAX, Object, Val};

/// Writes a value without white space.
pub(crate) fn write(value: &Val) -> String {
    let mut out = String::new();
    write_into(&mut out, value);
    out
}

/// Returns a string unchanged, and any other value as a string of JSON.
pub(super) fn text_of(value: &Val) -> Val {
    match value {
        Val::Str(_) => value.clone(),
        value => Val::from(write(value)),
    }
}

fn write_into(out: &mut String, value: &Val) {
    match value {
        Val::Null => out.push_str("null"),
        Val::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Val::Num(number) => out.push_str(&number.to_json()),
        Val::Str(text) => write_text(out, text),
        Val::Arr(array) => {
            out.push('[');
            for (place, member) in array.members().iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_into(out, member);
            }
            out.push(']');
        }
        Val::Obj(object) => {
            out.push('{');
            for (place, (name, member)) in object.members().iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_text(out, name);
                out.push(':');
                write_into(out, member);
            }
            out.push('}');
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                // Writing to a `String` does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// The reason why a text cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParseFailure {
    /// The text is not JSON.
    NotJson,
    /// jq parses this text or may parse it: `nan`, an unpaired surrogate, or more levels than
    /// [`DEPTH_MAX`].
    MaybeValid,
}

/// Parses one JSON value.
///
/// # Errors
/// The text is not JSON, or has a form that only jq may accept.
pub(crate) fn read(text: &str) -> Result<Val, ParseFailure> {
    let mut reader = Reader { rest: text, is_unsure: false };
    let value = reader.value(0).filter(|_| {
        reader.space();
        reader.rest.is_empty()
    });
    let unsure = if reader.is_unsure { ParseFailure::MaybeValid } else { ParseFailure::NotJson };
    value.ok_or(unsure)
}

struct Reader<'t> {
    rest: &'t str,
    is_unsure: bool,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn skip(&mut self, text: &str) -> Option<()> {
        self.space();
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    fn unsure<T>(&mut self) -> Option<T> {
        self.is_unsure = true;
        None
    }

    fn value(&mut self, depth: u32) -> Option<Val> {
        if depth > DEPTH_MAX {
            return self.unsure();
        }
        self.space();
        let start = self.rest.trim_start_matches(['-', '+']).get(..3).unwrap_or("");
        if start.eq_ignore_ascii_case("nan") || start.eq_ignore_ascii_case("inf") {
            return self.unsure();
        }
        match self.rest.bytes().next()? {
            b'n' => self.skip("null").map(|()| Val::Null),
            b't' => self.skip("true").map(|()| Val::Bool(true)),
            b'f' => self.skip("false").map(|()| Val::Bool(false)),
            b'"' => self.text().map(Val::Str),
            b'[' => self.array(depth),
            b'{' => self.object(depth),
            b'-' | b'0'..=b'9' => self.number(),
            // A number in a form that only jq's number library accepts, or a byte order mark.
            b'+' | b'.' | 0xef => self.unsure(),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Val> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        match Num::parse(number) {
            Some(number) => Some(Val::Num(number)),
            // The number is too long, or has a form that only jq's number library accepts.
            None => self.unsure(),
        }
    }

    fn array(&mut self, depth: u32) -> Option<Val> {
        self.skip("[")?;
        let mut array = Array::default();
        if self.skip("]").is_some() {
            return Some(Val::Arr(Arc::new(array)));
        }
        loop {
            array.push(self.value(depth + 1)?);
            if self.skip("]").is_some() {
                return Some(Val::Arr(Arc::new(array)));
            }
            self.skip(",")?;
        }
    }

    fn object(&mut self, depth: u32) -> Option<Val> {
        self.skip("{")?;
        let mut object = Object::default();
        if self.skip("}").is_some() {
            return Some(Val::Obj(Arc::new(object)));
        }
        loop {
            self.space();
            let name = self.text()?;
            self.skip(":")?;
            let value = self.value(depth + 1)?;
            object.set(name, value);
            if self.skip("}").is_some() {
                return Some(Val::Obj(Arc::new(object)));
            }
            self.skip(",")?;
        }
    }

    fn text(&mut self) -> Option<Arc<str>> {
        self.rest = self.rest.strip_prefix('"')?;
        let mut text = String::new();
        loop {
            let end = self.rest.find(['"', '\\'])?;
            let (plain, rest) = self.rest.split_at_checked(end)?;
            text.push_str(plain);
            if let Some(rest) = rest.strip_prefix('"') {
                self.rest = rest;
                return Some(text.into());
            }
            let mut characters = rest.get(1..)?.chars();
            let escape = characters.next()?;
            self.rest = characters.as_str();
            text.push(match escape {
                '"' | '\\' | '/' => escape,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => self.code_point()?,
                _ => return None,
            });
        }
    }

    fn unit(&mut self) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u32::from_str_radix(digits, 16).ok()
    }

    fn code_point(&mut self) -> Option<char> {
        let high = self.unit()?;
        if let Some(character) = char::from_u32(high) {
            return Some(character);
        }
        let low = self.rest.strip_prefix("\\u").and_then(|rest| {
            self.rest = rest;
            self.unit()
        });
        match low.filter(|low| high < 0xdc00 && (0xdc00..0xe000).contains(low)) {
            Some(low) => char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)),
            None => self.unsure(),
        }
    }
}
