//! The tools: one entry for each page of the console, and for each action that is safe. A new page is a new entry.
//!
//! An action is safe here if it ends within a call and the store can repeat or bound it. Edits of items, splits,
//! restores and erasures need a person who sees what they change, so only the console has them.

use super::tool::{Change, Effect, Kind, Parameter, Tool};

/// All tools, those of actions last.
pub(super) const CATALOG: &[Tool] = &[
    page(
        "pipelines",
        "/pipelines",
        "Show why each function ran or did not: for each mapping its state in one sentence, counts of records read, filtered, delivered and discarded, and what blocks it. Start here.",
        &[number("page", 1, 100, "Page of mappings")],
    ),
    page(
        "stream",
        "/stream",
        "List the newest stream records, each with the verdict of every mapping: filtered with the clause, waiting, delivered or failed.",
        &[
            text("table", "Only records of this table"),
            object(
                "key",
                "Only records of the item with this key, in plain or DynamoDB JSON; needs `table`",
            ),
            number("limit", 1, 100, "Number of records [default: 25]"),
        ],
    ),
    page(
        "record",
        "/stream/{record}",
        "Explain one record: what each mapping did with it, its attempts with their log lines, and the record as the function gets it. Needs a running `weir up`.",
        &[
            text("record", "Sequence number or event id, as `stream` lists it, in quotes")
                .required(),
            text("table", "The table of the record"),
        ],
    ),
    page(
        "filter",
        "/stream/filter",
        "Run a filter pattern over the last 100 records of a table: says for each whether it matches and which clause fails. Invokes nothing.",
        &[
            text("table", "The table"),
            object("pattern", "A pattern or a FilterCriteria object: {\"eventName\":[\"INSERT\"]}"),
            text("mapping", "Take the filter of this mapping, if there is no `pattern`"),
        ],
    ),
    page(
        "tables",
        "/tables",
        "List tables with their keys, indexes, size, stream and TTL. Counts are approximate.",
        &[text("after", "The last table of the page before, its `next`")],
    ),
    page(
        "table",
        "/tables/{table}",
        "Read items of a table with one Query (with `pk`) or Scan, and show the request as code and its capacity. Keys and filter values are texts; the table's key types apply.",
        &[
            text("table", "The table").required(),
            text("index", "An index of the table"),
            text("pk", "Value of the partition key, as text; without it a Scan"),
            text("pk2", "Value of the second attribute of the partition key, if it has several"),
            text("pk3", "Value of the third one"),
            text("pk4", "Value of the fourth one"),
            choice(
                "sk_op",
                &["=", "<", "<=", ">", ">=", "between", "begins_with"],
                "Operator of the sort key",
            ),
            text("sk", "Its operand, or the lower bound of `between`"),
            text("sk_to", "The upper bound of `between`"),
            text("filter", "Document path that the filter reads, such as info.rating"),
            text(
                "filter_op",
                "=, <>, <, <=, >, >=, between, in, begins_with, contains, attribute_exists, attribute_not_exists, attribute_type, or size with a comparison, such as `size >`",
            ),
            choice(
                "filter_type",
                &["S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M"],
                "Type of the filter's value [default: S]",
            ),
            text("filter_value", "Value of the filter, as text, or the lower bound of `between`"),
            text("filter_to", "The upper bound of `between`"),
            text("project", "Document paths to return, between commas"),
            choice("order", &["asc", "desc"], "Order of a Query"),
            flag("consistent", "Read strongly consistent"),
            number("limit", 1, 100, "Number of items that are read [default: 25]"),
            object(
                "after",
                "The key after which the page begins, `next` of the page before, in DynamoDB JSON",
            ),
        ],
    ),
    page(
        "item",
        "/tables/{table}/item",
        "Read one whole item, strongly consistent.",
        &[
            text("table", "The table").required(),
            object("key", "The key in DynamoDB JSON: {\"id\":{\"S\":\"a\"}}").required(),
        ],
    ),
    page(
        "partitions",
        "/partitions/{table}",
        "Show the partitions, hot keys and load of a table's key space, of Weir's own store only. Without `table`, list the tables.",
        &[
            text("table", "The table"),
            text("after", "Without `table`: the last table of the page before, its `next`"),
        ],
    ),
    page(
        "ring",
        "/ring",
        "Show the nodes and arcs of Weir's own store: who leads, what is damaged, unreachable or being rebuilt.",
        &[],
    ),
    page(
        "migrations",
        "/migrations",
        "List the migrations of the store with the phase of each.",
        &[],
    ),
    page(
        "migration",
        "/migrations/{name}",
        "Show one migration: its phase, whether it is safe to cut over now with every reason against it, speed, lag, differences, samples before and after, the verbs that are safe now, and its journal. `weir migrate` carries out the others.",
        &[text("name", "The migration").required()],
    ),
    page(
        "archive",
        "/archive",
        "List archived days, the rows of a day, or preview a restore or an erasure. A preview writes nothing.",
        &[
            text("bucket", "The bucket of the archive; needed on AWS"),
            text("table", "Only days of this table; needed by `day` and `do`"),
            text("day", "Show the first rows of this UTC day, such as 2026-01-31"),
            number("skip", 1, 1_000_000, "Number of days to skip"),
            choice("do", &["restore", "erase"], "Preview this for `table`"),
            object("key", "Restore: the key of an item, in plain or DynamoDB JSON"),
            text("where", "Restore: a condition, such as year = 2013"),
            text("dt", "Restore: only items deleted on this UTC day"),
            text("as_of", "Restore: only deletes up to this time"),
            flag("all", "Restore: all items"),
            text("ttl", "Restore: `strip`, or seconds until the items expire [default: strip]"),
            text("equals", "Erase: attributes with their values, such as customer=ada"),
            text("begins_with", "Erase: a string attribute and its prefix, such as key=user#7#"),
        ],
    ),
    page(
        "versions",
        "/versions",
        "Show the history of an item, 30 versions at a time, newest first, the places at which a change is missing, and the difference between two versions.",
        &[
            text("table", "The table; may be left out if only one has histories"),
            object(
                "key",
                "The key of the item, in plain or DynamoDB JSON; without it, some keys are listed",
            ),
            number("from", 0, u64::MAX, "Compare this version"),
            number("to", 0, u64::MAX, "with this one [default: the current one]"),
            number("skip", 1, 10_000_000, "Number of newer versions to skip"),
        ],
    ),
    page(
        "counters",
        "/counters",
        "Read sharded counters: the total of each beside the sum of its slots, with the difference.",
        &[
            text("counter", "Only this counter"),
            text("after", "The last counter of the page before, its `next`"),
        ],
    ),
    page(
        "copies",
        "/copies",
        "Show fan-out jobs, which update the copies of an item after it changed, open and failed ones first.",
        &[
            text("table", "The table of jobs [default: that of the running template]"),
            text("after", "The last job of the page before, its `next`"),
        ],
    ),
    action(
        "redrive",
        "/stream/redrive",
        "Invoke a function again with the records of a failure object, as `record` names it. The object is kept.",
        Change { is_destructive: true, is_idempotent: false, runs_code: true },
        &[text("object", "The key of the failure object").required()],
    ),
    action(
        "clock_advance",
        "/clock/advance",
        "Advance the clock of a local store. This cannot be undone: items expire, and waiting records grow older.",
        Change { is_destructive: true, is_idempotent: false, runs_code: false },
        &[choice("by", &["1h", "1d"], "An hour or a day").required()],
    ),
    action(
        "clock_sweep",
        "/clock/sweep",
        "Delete the items of a local store whose TTL has passed.",
        Change { is_destructive: true, is_idempotent: true, runs_code: false },
        &[],
    ),
    action(
        "migration_pause",
        "/migrations/{name}/pause",
        "Pause the backfill of a migration. `migration_resume` continues it.",
        Change { is_destructive: false, is_idempotent: true, runs_code: false },
        &[text("name", "The migration").required()],
    ),
    action(
        "migration_resume",
        "/migrations/{name}/resume",
        "Resume the backfill of a migration, also its segments that were set aside.",
        Change { is_destructive: false, is_idempotent: true, runs_code: false },
        &[text("name", "The migration").required()],
    ),
    action(
        "migration_throttle",
        "/migrations/{name}/throttle",
        "Limit the backfill of a migration.",
        Change { is_destructive: false, is_idempotent: true, runs_code: false },
        &[
            text("name", "The migration").required(),
            number("rate", 0, u64::MAX, "Items per second over all workers, 0 for no limit")
                .required(),
        ],
    ),
];

const fn page(
    name: &'static str,
    path: &'static str,
    description: &'static str,
    parameters: &'static [Parameter],
) -> Tool {
    Tool { name, description, path, effect: Effect::Reads, parameters }
}

const fn action(
    name: &'static str,
    path: &'static str,
    description: &'static str,
    change: Change,
    parameters: &'static [Parameter],
) -> Tool {
    Tool { name, description, path, effect: Effect::Changes(change), parameters }
}

const fn parameter(name: &'static str, description: &'static str, kind: Kind) -> Parameter {
    Parameter { name, description, kind, is_required: false }
}

const fn text(name: &'static str, description: &'static str) -> Parameter {
    parameter(name, description, Kind::Text)
}

const fn object(name: &'static str, description: &'static str) -> Parameter {
    parameter(name, description, Kind::Object)
}

const fn flag(name: &'static str, description: &'static str) -> Parameter {
    parameter(name, description, Kind::Flag)
}

const fn choice(
    name: &'static str,
    texts: &'static [&'static str],
    description: &'static str,
) -> Parameter {
    parameter(name, description, Kind::Choice(texts))
}

const fn number(name: &'static str, min: u64, max: u64, description: &'static str) -> Parameter {
    parameter(name, description, Kind::Number(min, max))
}
