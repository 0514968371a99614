//! The tokenizer of expressions.
//!
//! Every text can be tokenized: a character that begins no token becomes a separate token, which
//! the grammar then rejects.

/// The kind of a token. Keywords are case-insensitive and the same in every kind of expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A bare word: a letter, then letters, digits and `_`.
    Word,
    /// `#` and at least one letter, digit or `_`.
    Name,
    /// `:` and at least one letter, digit or `_`.
    Value,
    /// A list index: `0`, or digits that do not start with 0.
    Integer,
    And,
    Or,
    Not,
    Between,
    In,
    Set,
    Remove,
    Add,
    Delete,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Open,
    Close,
    OpenBracket,
    CloseBracket,
    Comma,
    Dot,
    Plus,
    Minus,
    /// A character that begins no token.
    Unknown,
    /// The end of the text.
    End,
}

/// A token and its position: the bytes `start..end` of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

const KEYWORDS: [(&str, TokenKind); 9] = [
    ("AND", TokenKind::And),
    ("OR", TokenKind::Or),
    ("NOT", TokenKind::Not),
    ("BETWEEN", TokenKind::Between),
    ("IN", TokenKind::In),
    ("SET", TokenKind::Set),
    ("REMOVE", TokenKind::Remove),
    ("ADD", TokenKind::Add),
    ("DELETE", TokenKind::Delete),
];

/// Splits the text into tokens. The last token is always [`TokenKind::End`].
pub(crate) fn tokenize(text: &str) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(text.len() / 3 + 2);
    let mut start = 0;
    while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
        let (kind, length) = first_token(rest);
        let end = start + length;
        tokens.extend(kind.map(|kind| Token { kind, start, end }));
        start = end;
    }
    tokens.push(Token { kind: TokenKind::End, start: text.len(), end: text.len() });
    tokens
}

/// Returns the kind and the length in bytes of the first token of `rest`; no kind for white space.
fn first_token(rest: &str) -> (Option<TokenKind>, usize) {
    let mut characters = rest.chars();
    let Some(first) = characters.next() else { return (None, 0) };
    let second = characters.next();
    let word_length =
        |from: usize| from + rest.bytes().skip(from).take_while(|byte| is_word_byte(*byte)).count();
    let (kind, length) = match (first, second) {
        (' ' | '\t' | '\r' | '\n', _) => return (None, 1),
        ('#' | ':', _) => match word_length(1) {
            1 => (TokenKind::Unknown, 1),
            length if first == '#' => (TokenKind::Name, length),
            length => (TokenKind::Value, length),
        },
        ('0', _) => (TokenKind::Integer, 1),
        ('1'..='9', _) => (TokenKind::Integer, rest.bytes().take_while(u8::is_ascii_digit).count()),
        ('<', Some('>')) => (TokenKind::NotEqual, 2),
        ('<', Some('=')) => (TokenKind::LessOrEqual, 2),
        ('>', Some('=')) => (TokenKind::GreaterOrEqual, 2),
        ('<', _) => (TokenKind::Less, 1),
        ('>', _) => (TokenKind::Greater, 1),
        ('=', _) => (TokenKind::Equal, 1),
        ('(', _) => (TokenKind::Open, 1),
        (')', _) => (TokenKind::Close, 1),
        ('[', _) => (TokenKind::OpenBracket, 1),
        (']', _) => (TokenKind::CloseBracket, 1),
        (',', _) => (TokenKind::Comma, 1),
        ('.', _) => (TokenKind::Dot, 1),
        ('+', _) => (TokenKind::Plus, 1),
        ('-', _) => (TokenKind::Minus, 1),
        (letter, _) if letter.is_ascii_alphabetic() => {
            let length = word_length(1);
            (keyword(rest.get(..length).unwrap_or("")), length)
        }
        (other, _) => (TokenKind::Unknown, other.len_utf8()),
    };
    (Some(kind), length)
}

fn keyword(word: &str) -> TokenKind {
    KEYWORDS
        .iter()
        .find(|(text, _)| text.eq_ignore_ascii_case(word))
        .map_or(TokenKind::Word, |(_, kind)| *kind)
}

/// Returns whether a byte may follow the first character of a word.
pub(crate) fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_split_as_the_service_splits_them() {
        for (text, tokens) in [
            ("a=:v", vec!["a", "=", ":v"]),
            ("a_1.#b[10]", vec!["a_1", ".", "#b", "[", "10", "]"]),
            ("_abc", vec!["_", "abc"]),
            ("123a", vec!["123", "a"]),
            ("01", vec!["0", "1"]),
            ("a<>b<=c>=d<e>f", vec!["a", "<>", "b", "<=", "c", ">=", "d", "<", "e", ">", "f"]),
            (": # :_ #1", vec![":", "#", ":_", "#1"]),
            ("é\"\u{1F600}", vec!["é", "\"", "\u{1F600}"]),
            (" \t\r\n", vec![]),
            ("a\u{a0}b", vec!["a", "\u{a0}", "b"]),
        ] {
            let all = tokenize(text);
            let (last, found) = all.split_last().unwrap();
            assert_eq!(last.kind, TokenKind::End);
            let found: Vec<&str> =
                found.iter().map(|token| &text[token.start..token.end]).collect();
            assert_eq!(found, tokens, "{text}");
        }
    }

    #[test]
    fn keywords_are_whole_words_in_any_case() {
        let kind = |text: &str| tokenize(text)[0].kind;
        assert_eq!(kind("bEtWeEn"), TokenKind::Between);
        assert_eq!(kind("and"), TokenKind::And);
        assert_eq!(kind("android"), TokenKind::Word);
        assert_eq!(kind("#and"), TokenKind::Name);
    }
}
