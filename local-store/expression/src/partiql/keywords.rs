//! The words that are no names in a statement.
//!
//! What stands where a word is refused is the grammar's business.

/// Every word that cannot be a bare name here.
const KEYWORDS: [&str; 29] = [
    "SELECT",
    "FROM",
    "WHERE",
    "INSERT",
    "INTO",
    "VALUE",
    "UPDATE",
    "SET",
    "REMOVE",
    "DELETE",
    "RETURNING",
    "ORDER",
    "BY",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "IS",
    "MISSING",
    "NULL",
    "TRUE",
    "FALSE",
    "AS",
    "ASC",
    "DESC",
    "EXISTS",
    "LIKE",
    "VALUES",
];

/// Types behind `IS` that the service knows and does not test for, by their first words.
const TYPES: &str = "missing null bool boolean smallint int2 integer2 int integer int4 integer4 int8 integer8 bigint \
    float real double decimal dec numeric timestamp date time char character varchar string symbol clob blob struct \
    tuple list sexp bag";

fn is_in(words: &str, word: &str) -> bool {
    words.split_ascii_whitespace().any(|known| known.eq_ignore_ascii_case(word))
}

pub(super) fn is_keyword(word: &str) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word))
}

/// A keyword that is an operator.
pub(super) fn is_operator(word: &str) -> bool {
    is_in("is like", word)
}

pub(super) fn is_type(word: &str) -> bool {
    is_in(TYPES, word)
}
