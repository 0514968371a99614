//! The filters that transforms may use, by name and number of arguments.

use strsim::jaro_winkler;
use thiserror::Error;

/// A format `@name`, which converts a value to a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    Csv,
    Tsv,
    Html,
    Uri,
    Urid,
    Sh,
    Base64,
    Base64d,
}

/// Returns the format with this name. `name` has no `@`.
pub(super) fn format(name: &str) -> Option<Format> {
    Some(match name {
        "text" => Format::Text,
        "json" => Format::Json,
        "csv" => Format::Csv,
        "tsv" => Format::Tsv,
        "html" => Format::Html,
        "uri" => Format::Uri,
        "urid" => Format::Urid,
        "sh" => Format::Sh,
        "base64" => Format::Base64,
        "base64d" => Format::Base64d,
        _ => return None,
    })
}

macro_rules! builtins {
    ($($builtin:ident = $name:literal $($arity:literal)+;)+) => {
        /// A built-in filter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Builtin {
            Format(Format),
            $($builtin,)+
        }

        /// The filters: the name, the possible numbers of arguments, and the filter.
        const BUILTINS: &[(&str, &[usize], Builtin)] =
            &[$(($name, &[$($arity),+], Builtin::$builtin),)+];
    };
}

builtins! {
    Abs = "abs" 0;
    Add = "add" 0 1;
    All = "all" 0 1 2;
    Any = "any" 0 1 2;
    Arrays = "arrays" 0;
    AsciiDowncase = "ascii_downcase" 0;
    AsciiUpcase = "ascii_upcase" 0;
    Booleans = "booleans" 0;
    Capture = "capture" 1 2;
    Ceil = "ceil" 0;
    Combinations = "combinations" 0 1;
    Contains = "contains" 1;
    Del = "del" 1;
    Delpaths = "delpaths" 1;
    Empty = "empty" 0;
    Endswith = "endswith" 1;
    Error = "error" 0 1;
    Explode = "explode" 0;
    Fabs = "fabs" 0;
    Finites = "finites" 0;
    First = "first" 0 1;
    Flatten = "flatten" 0 1;
    Floor = "floor" 0;
    FromEntries = "from_entries" 0;
    Fromdate = "fromdate" 0;
    Fromdateiso8601 = "fromdateiso8601" 0;
    Fromjson = "fromjson" 0;
    Getpath = "getpath" 1;
    Gmtime = "gmtime" 0;
    GroupBy = "group_by" 1;
    Gsub = "gsub" 2 3;
    Has = "has" 1;
    Implode = "implode" 0;
    In = "in" 1;
    InValues = "IN" 1 2;
    Index = "index" 1;
    IndexBy = "INDEX" 1 2;
    Indices = "indices" 1;
    Infinite = "infinite" 0;
    Inside = "inside" 1;
    Isempty = "isempty" 1;
    Isinfinite = "isinfinite" 0;
    Isnan = "isnan" 0;
    Isnormal = "isnormal" 0;
    Iterables = "iterables" 0;
    Join = "join" 1;
    Keys = "keys" 0;
    KeysUnsorted = "keys_unsorted" 0;
    Last = "last" 0 1;
    Length = "length" 0;
    Limit = "limit" 2;
    Ltrim = "ltrim" 0;
    Ltrimstr = "ltrimstr" 1;
    Map = "map" 1;
    MapValues = "map_values" 1;
    Match = "match" 1 2;
    Max = "max" 0;
    MaxBy = "max_by" 1;
    Min = "min" 0;
    MinBy = "min_by" 1;
    Mktime = "mktime" 0;
    Nan = "nan" 0;
    Normals = "normals" 0;
    Not = "not" 0;
    Nth = "nth" 1 2;
    Nulls = "nulls" 0;
    Numbers = "numbers" 0;
    Objects = "objects" 0;
    Path = "path" 1;
    Paths = "paths" 0 1;
    Pick = "pick" 1;
    Pow = "pow" 2;
    Range = "range" 1 2 3;
    Recurse = "recurse" 0 1 2;
    Reverse = "reverse" 0;
    Rindex = "rindex" 1;
    Round = "round" 0;
    Rtrim = "rtrim" 0;
    Rtrimstr = "rtrimstr" 1;
    Scalars = "scalars" 0;
    Scan = "scan" 1 2;
    Select = "select" 1;
    Setpath = "setpath" 2;
    Skip = "skip" 2;
    Sort = "sort" 0;
    SortBy = "sort_by" 1;
    Split = "split" 1 2;
    Splits = "splits" 1 2;
    Sqrt = "sqrt" 0;
    Startswith = "startswith" 1;
    Strftime = "strftime" 1;
    Strings = "strings" 0;
    Strptime = "strptime" 1;
    Sub = "sub" 2 3;
    Test = "test" 1 2;
    ToEntries = "to_entries" 0;
    Toboolean = "toboolean" 0;
    Todate = "todate" 0;
    Todateiso8601 = "todateiso8601" 0;
    Tojson = "tojson" 0;
    Tonumber = "tonumber" 0;
    Tostring = "tostring" 0;
    Transpose = "transpose" 0;
    Trim = "trim" 0;
    Trimstr = "trimstr" 1;
    Trunc = "trunc" 0;
    Type = "type" 0;
    Unique = "unique" 0;
    UniqueBy = "unique_by" 1;
    Until = "until" 2;
    Utf8bytelength = "utf8bytelength" 0;
    Values = "values" 0;
    Walk = "walk" 1;
    While = "while" 2;
    WithEntries = "with_entries" 1;
}

/// Filters of jq that read data outside of the item, or that have a side effect.
const OUTSIDE: [&str; 15] = [
    "builtins",
    "debug",
    "env",
    "get_search_list",
    "halt",
    "halt_error",
    "input",
    "input_filename",
    "input_line_number",
    "inputs",
    "localtime",
    "modulemeta",
    "now",
    "stderr",
    "strflocaltime",
];
/// Further filters of jq that are not available.
const ABSENT: [&str; 26] = [
    "acos",
    "ascii",
    "asin",
    "atan",
    "bsearch",
    "cos",
    "dateadd",
    "datesub",
    "exp",
    "exp10",
    "exp2",
    "frexp",
    "fromstream",
    "isvalid",
    "ldexp",
    "log",
    "log10",
    "log2",
    "modf",
    "repeat",
    "significand",
    "sin",
    "tan",
    "toarray",
    "tostream",
    "truncate_stream",
];
/// The minimum similarity of a name for a message to suggest it.
const ALIKE: f64 = 0.8;

/// A call of a filter that does not exist.
#[derive(Debug, Error)]
pub(super) enum UnknownFilter<'n> {
    /// A filter of jq that reads data outside of its input.
    #[error("`{0}` is not available in transforms: it reads data outside of the item")]
    Outside(&'n str),
    /// A filter of jq that is not available.
    #[error("`{0}` is not available in transforms")]
    Absent(&'n str),
    /// An unknown name that is similar to the name of a filter.
    #[error("unknown filter `{name}`; did you mean `{nearest}`?")]
    Similar { name: &'n str, nearest: &'static str },
    /// An unknown name.
    #[error("unknown filter `{0}`")]
    Unknown(&'n str),
    /// A filter with a wrong number of arguments. `takes` contains the allowed numbers.
    #[error("`{name}` takes {takes} arguments, not {found}")]
    Arguments { name: &'n str, takes: String, found: usize },
}

/// Returns the filter with this name and number of arguments.
///
/// # Errors
/// Returns the reason and the most similar name if there is no such filter.
pub(super) fn find(name: &str, arguments: usize) -> Result<Builtin, UnknownFilter<'_>> {
    if OUTSIDE.contains(&name) {
        return Err(UnknownFilter::Outside(name));
    }
    if ABSENT.contains(&name) {
        return Err(UnknownFilter::Absent(name));
    }
    let known = BUILTINS.iter().find(|(known, ..)| *known == name);
    let Some((_, arities, builtin)) = known else {
        let alike = BUILTINS.iter().map(|(known, ..)| (jaro_winkler(known, name), known));
        let nearest = alike.max_by(|left, right| left.0.total_cmp(&right.0));
        return Err(match nearest.filter(|(alike, _)| *alike >= ALIKE) {
            Some((_, nearest)) => UnknownFilter::Similar { name, nearest },
            None => UnknownFilter::Unknown(name),
        });
    };
    if arities.contains(&arguments) {
        return Ok(*builtin);
    }
    let takes: Vec<_> = arities.iter().map(ToString::to_string).collect();
    Err(UnknownFilter::Arguments { name, takes: takes.join(" or "), found: arguments })
}
