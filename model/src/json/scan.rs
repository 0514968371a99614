//! Scans JSON text from front to back, without a tree and without copies.
//!
//! The scanner is a fast path for valid texts, such as most requests and stream records. For any
//! unusual text, it returns `None` without a reason, and the caller falls back to `tree`. It
//! accepts only texts that `tree` accepts, except inside values that [`Scanner::unread`] skips. It
//! does not interpret values.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// A position in a JSON text.
pub(crate) struct Scanner<'t> {
    text: &'t str,
    at: usize,
    /// Whether the current value contains something that `encode` would write differently.
    is_unusual: bool,
}

impl<'t> Scanner<'t> {
    /// Creates a scanner at the beginning of a text.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, at: 0, is_unusual: false }
    }

    fn rest(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Returns the next byte that is not white space, without consuming it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => {
                    self.is_unusual = true;
                    self.at += 1;
                }
                byte => return Some(byte),
            }
        }
    }

    /// Consumes `byte` if it is the next byte. Returns whether it was.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    /// Consumes a word such as `true` if it comes next. Returns whether it did.
    fn word(&mut self, word: &str) -> bool {
        let found = self.peek().is_some() && self.rest().starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Records that `encode` would write the value differently. The scanner calls this function for
    /// white space and escapes. Its callers call it for all other differences.
    pub(crate) fn note_unusual(&mut self) {
        self.is_unusual = true;
    }

    /// Runs `read`, and returns its value with the text that it consumed. The text is `None` if `encode`
    /// would write the value differently. White space before the text is ignored.
    pub(crate) fn as_written<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<(T, Option<&'t str>)> {
        self.peek()?;
        let start = self.at;
        let around = std::mem::replace(&mut self.is_unusual, false);
        let value = read(self)?;
        let text = self.text.get(start..self.at).filter(|_| !self.is_unusual);
        self.is_unusual |= around;
        Some((value, text))
    }

    /// Returns the result of `read` and the consumed text; consumes nothing if `read` returns
    /// `None`.
    pub(crate) fn try_read<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<(T, &'t str)> {
        self.peek()?;
        let start = self.at;
        let Some(value) = read(self) else {
            self.at = start;
            return None;
        };
        self.text.get(start..self.at).map(|text| (value, text))
    }

    /// Returns whether the rest of the text is only white space.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Consumes `null` if it comes next. Returns whether it did.
    pub(crate) fn null(&mut self) -> bool {
        self.word("null")
    }

    /// Reads `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Option<bool> {
        if self.word("true") { Some(true) } else { self.word("false").then_some(false) }
    }

    /// Reads an integer of a few digits, without sign, fraction or exponent. Consumes nothing and
    /// returns `None` for any other value.
    pub(crate) fn whole_number(&mut self) -> Option<u64> {
        /// The maximum number of digits. Every number with 18 digits fits into 64 bits.
        const DIGITS_MAX: usize = 18;
        self.peek()?;
        let digits =
            self.rest().iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit());
        let (count, number) = digits.fold((0, 0), |(count, number), digit| {
            (count + 1, number * 10 + u64::from(digit - b'0'))
        });
        // JSON allows no leading zeros. The next character must end the number; otherwise it may
        // have a fraction or an exponent.
        let is_whole = matches!(self.rest().get(count), Some(b',' | b'}' | b']'))
            && (count == 1 || self.rest().first() != Some(&b'0'));
        (is_whole && (1..=DIGITS_MAX).contains(&count)).then(|| {
            self.at += count;
            number
        })
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Option<Cow<'t, str>> {
        self.expect(b'"')?;
        self.string_from_here()
    }

    /// Consumes these bytes if they come next, without white space before them. Returns whether
    /// they did.
    pub(crate) fn exactly(&mut self, bytes: &[u8]) -> bool {
        let found = self.rest().starts_with(bytes);
        self.at += if found { bytes.len() } else { 0 };
        found
    }

    /// Reads the rest of a string, after its opening quotation mark.
    pub(crate) fn string_from_here(&mut self) -> Option<Cow<'t, str>> {
        let start = self.at;
        let length = special_at(self.rest())?;
        self.at += length + 1;
        match *self.text.as_bytes().get(start + length)? {
            b'"' => self.text.get(start..start + length).map(Cow::Borrowed),
            b'\\' => self.escaped(start),
            _ => None,
        }
    }

    /// Reads the rest of a string that has an escape before this position.
    fn escaped(&mut self, start: usize) -> Option<Cow<'t, str>> {
        self.is_unusual = true;
        let mut is_escape = true;
        let end = self.rest().iter().position(|byte| {
            let is_end = *byte == b'"' && !is_escape;
            is_escape = *byte == b'\\' && !is_escape;
            is_end
        })?;
        self.at += end + 1;
        let quoted = self.text.get(start - 1..self.at)?;
        serde_json::from_str(quoted).ok().map(Cow::Owned)
    }

    /// Reads an object. `member` reads the value of each name.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'t, str>) -> Option<()>,
    ) -> Option<()> {
        self.members((b'{', b'}'), |scanner| {
            let name = scanner.name()?;
            member(scanner, name)
        })
    }

    /// Reads an object whose members are usually in the order of `names`, some of which may be
    /// missing. `member` reads the value of each member. Its argument is the entry of `names` for
    /// the member's name, or `None` for an unknown name.
    pub(crate) fn usual_object<N: Copy>(
        &mut self,
        names: &[(&str, N)],
        mut member: impl FnMut(&mut Self, Option<N>) -> Option<()>,
    ) -> Option<()> {
        let mut next = 0;
        self.members((b'{', b'}'), |scanner| {
            let place = match scanner.usual_name(names, next) {
                Some(place) => Some(place),
                None => {
                    let name = scanner.name()?;
                    names.iter().position(|(known, _)| *known == name)
                }
            };
            next = place.map_or(next, |place| place + 1);
            member(
                scanner,
                place.and_then(|place| names.get(place)).map(|(_, stands_for)| *stands_for),
            )
        })
    }

    /// Consumes a name and its colon if the name is one of the next two in `names` and is written
    /// without white space and escapes. Returns its index.
    fn usual_name<N>(&mut self, names: &[(&str, N)], next: usize) -> Option<usize> {
        let rest = self.rest().strip_prefix(b"\"")?;
        let (place, length) = (next..next + 2).find_map(|place| {
            let (name, _) = names.get(place)?;
            let behind = rest.strip_prefix(name.as_bytes())?;
            behind.starts_with(b"\":").then_some((place, name.len() + "\"\":".len()))
        })?;
        self.at += length;
        Some(place)
    }

    /// Reads the name of an object's member.
    pub(crate) fn name(&mut self) -> Option<Cow<'t, str>> {
        let name = self.string()?;
        self.expect(b':').map(|()| name)
    }

    /// Reads an array. `member` reads each value.
    pub(crate) fn array(&mut self, member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.members((b'[', b']'), member)
    }

    /// Reads comma-separated members between two brackets. `member` reads each member.
    pub(crate) fn members(
        &mut self,
        (open, close): (u8, u8),
        mut member: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.expect(open)?;
        if self.take(close) {
            return Some(());
        }
        loop {
            member(self)?;
            if self.take(close) {
                return Some(());
            }
            self.expect(b',')?;
        }
    }

    /// Reads a value of any kind as raw text.
    pub(crate) fn raw(&mut self) -> Option<&'t str> {
        self.peek()?;
        let start = self.at;
        if self.rest().first() == Some(&b'"') {
            self.string()?;
        } else {
            let rest = self.text.get(start..)?;
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
            values.next()?.ok()?;
            self.at += values.byte_offset();
        }
        self.text.get(start..self.at)
    }

    /// Reads an object as raw text, checking only that it is JSON. Returns `None` at a number,
    /// because no item contains numbers outside strings.
    pub(crate) fn object_text(&mut self) -> Option<&'t str> {
        let start = self.peek().filter(|byte| *byte == b'{').map(|_| self.at)?;
        self.go_over(LEVELS_MAX)?;
        self.text.get(start..self.at)
    }

    fn go_over(&mut self, levels: usize) -> Option<()> {
        let levels = levels.checked_sub(1)?;
        match self.peek()? {
            b'{' => self.members((b'{', b'}'), |scanner| {
                scanner.expect(b'"')?;
                scanner.skip_string()?;
                scanner.expect(b':')?;
                scanner.go_over(levels)
            }),
            b'[' => self.members((b'[', b']'), |scanner| scanner.go_over(levels)),
            b'"' => {
                self.at += 1;
                self.skip_string()
            }
            b'n' => self.null().then_some(()),
            _ => self.boolean().map(drop),
        }
    }

    /// Reads a value as raw text. Only finds the end of an object without checking its contents, so
    /// the caller must parse them.
    pub(crate) fn unread(&mut self) -> Option<&'t str> {
        if self.peek()? != b'{' {
            return self.raw();
        }
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b'"' => {
                    self.at += 1;
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                // A backslash is invalid outside of strings, and accepting it could hide the
                // beginning of a string.
                b'\\' => return None,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return self.text.get(start..self.at);
            }
        }
    }

    /// Skips the rest of a string.
    fn skip_string(&mut self) -> Option<()> {
        loop {
            self.at += special_at(self.rest())?;
            match *self.rest() {
                [b'"', ..] => {
                    self.at += 1;
                    return Some(());
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
                [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(u8::is_ascii_hexdigit) => {
                    self.at += 6;
                }
                _ => return None,
            }
        }
    }
}

/// The maximum number of levels of a skipped value: more than any item has, and far fewer than the
/// stack allows.
const LEVELS_MAX: usize = 100;

/// Returns the position of the first byte that must be escaped in a string or ends it. Most strings
/// in a record are short, and a simple loop is fastest for them. For longer strings, compares
/// sixteen bytes in one step.
fn special_at(bytes: &[u8]) -> Option<usize> {
    #[expect(clippy::indexing_slicing, reason = "a byte is below 256")]
    let is_special = |byte: &u8| IS_SPECIAL[usize::from(*byte)];
    let Some((head, rest)) = bytes.split_first_chunk::<SHORT_BYTES>() else {
        return bytes.iter().position(is_special);
    };
    if let Some(found) = head.iter().position(is_special) {
        return Some(found);
    }
    let has_special = |chunk: &[u8; TOGETHER_BYTES]| {
        let any = |any, byte: &u8| any | (*byte < b' ') | (*byte == b'"') | (*byte == b'\\');
        chunk.iter().fold(false, any)
    };
    let (chunks, _) = rest.as_chunks::<TOGETHER_BYTES>();
    let plain = chunks.iter().take_while(|chunk| !has_special(chunk)).count();
    let behind = SHORT_BYTES + plain * TOGETHER_BYTES;
    let found = bytes.get(behind..)?.iter().position(is_special)?;
    Some(behind + found)
}

/// The maximum length of a short string in bytes. Most strings are shorter.
const SHORT_BYTES: usize = 16;
/// The number of bytes that are compared in one step.
const TOGETHER_BYTES: usize = 16;

/// A table of the bytes that must be escaped in a string.
#[expect(clippy::indexing_slicing, reason = "all of them are below 256")]
const IS_SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < b' ' as usize {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_special_byte_is_found(bytes in prop::collection::vec(
            prop_oneof![
                Just(b'a'),
                any::<u8>(),
                prop::sample::select(&b"\"\\\x1f !#[]az\x7f\x80\xa2\xdc"[..]),
            ],
            0..40,
        ), plain in 0_usize..70) {
            let bytes = [vec![b'a'; plain], bytes].concat();
            let special = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
            prop_assert_eq!(special_at(&bytes), bytes.iter().position(special));
        }
    }

    #[test]
    fn strings_end_at_their_closing_quote() {
        for (text, expected) in [
            (r#""""#, Some("")),
            (r#" "a é""#, Some("a é")),
            (r#""q\"\\\u00e9\n""#, Some("q\"\\é\n")),
            (r#""\\""#, Some("\\")),
            (r#""a"#, None),
            (r#""a\""#, None),
            (r#""\ud800""#, None),
            ("\"a\nb\"", None),
            ("a", None),
        ] {
            let mut scanner = Scanner::new(text);
            assert_eq!(scanner.string().as_deref(), expected, "{text}");
            assert!(expected.is_none() || scanner.is_at_end(), "{text}");
        }
    }

    #[test]
    fn plain_integers_are_read() {
        for (text, expected) in [
            (" 0,", Some(0)),
            ("7}", Some(7)),
            ("1795000000]", Some(1_795_000_000)),
            ("999999999999999999,", Some(999_999_999_999_999_999)),
            ("1000000000000000000,", None),
            ("01,", None),
            ("-1,", None),
            ("1.5,", None),
            ("1e3,", None),
            ("7 ,", None),
            ("7", None),
            ("null,", None),
            (",", None),
            ("", None),
        ] {
            let mut scanner = Scanner::new(text);
            assert_eq!(scanner.whole_number(), expected, "{text}");
            let digits = expected.map_or(0, |number| number.to_string().len());
            assert_eq!(scanner.rest().len() + digits, text.trim_start().len(), "{text}");
        }
    }

    #[test]
    fn values_end_at_their_last_byte() {
        for text in [
            "7",
            "-1.5e3",
            "null",
            r#""a\"}""#,
            r#"{"a":[1,{"b":"}\\\""}],"c":{}}"#,
            r#"[{"a":"]"},[]]"#,
        ] {
            let followed = format!(" {text} ,1");
            assert_eq!(Scanner::new(&followed).raw(), Some(text));
            assert_eq!(Scanner::new(&followed).unread(), Some(text));
        }
        for wrong in ["", "}", "{", r#"{"a":1"#, "[1", "x", "{\\", r#"{"\x":1}"#, "{\"\n\":1}"] {
            assert_eq!(Scanner::new(wrong).raw(), None, "{wrong}");
            assert_eq!(Scanner::new(wrong).unread(), None, "{wrong}");
        }
    }

    #[test]
    fn objects_end_at_their_closing_brace() {
        for text in [
            "{}",
            r#"{"a" : {"L":[{"S":"}\"\\\/\b\f\n\r\t\u00e9\ud800é"},{"BOOL":true} , []]},"b":{"NULL":null}}"#,
        ] {
            assert_eq!(Scanner::new(&format!(" {text} ,1")).object_text(), Some(text));
        }
        let nested = |levels| format!("{}{}", r#"{"a":"#.repeat(levels) + "{}", "}".repeat(levels));
        assert!(Scanner::new(&nested(LEVELS_MAX - 1)).object_text().is_some());
        for wrong in [
            "",
            "[]",
            "\"a\"",
            "null",
            "{",
            "{,}",
            "{]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1}"#,
            r#"{"a":[}"#,
            r#"{"a":[],}"#,
            r#"{"a":[true,]}"#,
            r#"{"a":tru}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u00g0"}"#,
            r#"{"a":"b}"#,
            r#"{"a":"b" "c"}"#,
            "{\"a\":\"\n\"}",
            r#"{a:"b"}"#,
            r#"{"a":{"S":"a}},"SequenceNumber":"1"}},{"dynamodb":{"Keys":{"pk":{"S":"b\"c"}}"#,
            &nested(LEVELS_MAX),
        ] {
            assert_eq!(Scanner::new(wrong).object_text(), None, "{wrong}");
        }
    }
}
