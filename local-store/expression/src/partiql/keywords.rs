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

/// The reserved words of SQL-92 (ISO/IEC 9075:1992, section 5.2), none of which the service takes
/// behind a dot unless it is quoted.
const SQL_92: &str = "absolute action add all allocate alter and any are as asc assertion at authorization avg begin \
    between bit bit_length both by cascade cascaded case cast catalog char character char_length character_length \
    check close coalesce collate collation column commit connect connection constraint constraints continue convert \
    corresponding count create cross current current_date current_time current_timestamp current_user cursor date \
    day deallocate dec decimal declare default deferrable deferred delete desc describe descriptor diagnostics \
    disconnect distinct domain double drop else end end-exec escape except exception exec execute exists external \
    extract false fetch first float for foreign found from full get global go goto grant group having hour identity \
    immediate in indicator initially inner input insensitive insert int integer intersect interval into is isolation \
    join key language last leading left level like local lower match max min minute module month names national \
    natural nchar next no not null nullif numeric octet_length of on only open option or order outer output overlaps \
    pad partial position precision prepare preserve primary prior privileges procedure public read real references \
    relative restrict revoke right rollback rows schema scroll second section select session session_user set size \
    smallint some space sql sqlcode sqlerror sqlstate substring sum system_user table temporary then time timestamp \
    timezone_hour timezone_minute to trailing transaction translate translation trim true union unique unknown update \
    upper usage user using value values varchar varying view when whenever where with work write year zone";

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

/// A word that cannot be a bare name behind a dot.
pub(super) fn is_reserved_behind_dot(word: &str) -> bool {
    is_keyword(word) || is_in(SQL_92, word)
}

pub(super) fn is_type(word: &str) -> bool {
    is_in(TYPES, word)
}
