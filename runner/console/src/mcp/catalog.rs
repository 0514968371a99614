//! The catalog of tools, with an entry for each page of the console and each safe action. A new
//! page must have a new entry.
//!
//! An action is safe if it ends within a call, and is idempotent or limited in its effect. Edits of
//! items, splits, restores and erasures have no tool, because a person must see what they change.

use super::tool::{Change, Effect, Kind, Parameter, Tool};

/// All tools: first those of pages, then those of actions.
pub(super) const CATALOG: &[Tool] = &[
    page(
        "pipelines",
        "/pipelines",
        "Show why each function ran or did not: for each mapping its state in one sentence, counts of records read, filtered, delivered and discarded, and the reason if it is blocked. Start here.",
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
                "Only records of the item with this key, in plain or DynamoDB JSON; requires `table`",
            ),
            number("limit", 1, 100, "Number of records [default: 25]"),
        ],
    ),
    page(
        "record",
        "/stream/{record}",
        "Explain one record: what each mapping did with it, its attempts with their log lines, and the record as the function receives it. Requires a running `weir up`.",
        &[
            text("record", "Sequence number or event id, as `stream` lists it, in quotes")
                .required(),
            text("table", "The table of the record"),
            text("shard", "The shard of the record, as `stream` lists it; makes the search faster"),
        ],
    ),
    page(
        "filter",
        "/stream/filter",
        "Run a filter pattern over the last 100 records of a table, and show for each record whether it matches and which clause fails. Invokes no function.",
        &[
            text("table", "The table"),
            object("pattern", "A pattern or a FilterCriteria object: {\"eventName\":[\"INSERT\"]}"),
            text("mapping", "Mapping whose filter the tool runs if `pattern` is absent"),
        ],
    ),
    page(
        "tables",
        "/tables",
        "List tables with their keys, indexes, size, stream and TTL. Counts are approximate.",
        &[text("after", "Table after which the page begins: `next` of the previous page")],
    ),
    page(
        "table",
        "/tables/{table}",
        "Read items of a table with one Query (with `pk`) or Scan, and show the request as code and its capacity. Give key and filter values as strings; the tool converts keys to the key types of the table.",
        &[
            text("table", "The table").required(),
            text("index", "Index to read instead of the table"),
            text("pk", "Value of the partition key, as a string; if absent, the tool runs a Scan"),
            text("pk2", "Value of the second attribute of the partition key, if it has several"),
            text("pk3", "Value of the third attribute of the partition key"),
            text("pk4", "Value of the fourth attribute of the partition key"),
            choice(
                "sk_op",
                &["=", "<", "<=", ">", ">=", "between", "begins_with"],
                "Operator of the sort key",
            ),
            text("sk", "Operand of the sort key, or the lower bound of `between`"),
            text("sk_to", "Upper bound of `between` for the sort key"),
            text("filter", "Document path that the filter reads, such as info.rating"),
            text(
                "filter_op",
                "Operator of the filter: =, <>, <, <=, >, >=, between, in, begins_with, contains, attribute_exists, attribute_not_exists, attribute_type, or size with a comparison operator, such as `size >`",
            ),
            choice(
                "filter_type",
                &["S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M"],
                "Type of the filter's value [default: S]",
            ),
            text("filter_value", "Value of the filter, as a string, or lower bound of `between`"),
            text("filter_to", "Upper bound of `between` for the filter"),
            text("project", "Document paths to return, separated by commas"),
            choice("order", &["asc", "desc"], "Sort order of a Query"),
            flag("consistent", "Use strongly consistent reads"),
            number("limit", 1, 100, "Number of items to read [default: 25]"),
            object(
                "after",
                "Key after which the page begins, in DynamoDB JSON: `next` of the previous page",
            ),
        ],
    ),
    page(
        "item",
        "/tables/{table}/item",
        "Read one complete item with a strongly consistent read.",
        &[
            text("table", "The table").required(),
            object("key", "The key in DynamoDB JSON: {\"id\":{\"S\":\"a\"}}").required(),
        ],
    ),
    page(
        "partitions",
        "/partitions/{table}",
        "Show the partitions and hot keys of a table, and the load of its key space. Works only with Weir's own store. Without `table`, list the tables.",
        &[
            text("table", "The table"),
            text(
                "after",
                "Without `table`: table after which the page begins, `next` of the previous page",
            ),
        ],
    ),
    page(
        "ring",
        "/ring",
        "Show the nodes and arcs of Weir's own store: the leader of each arc, and the nodes that are damaged, unreachable or being rebuilt.",
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
        "Show one migration: its phase, whether a cut-over is safe now and each reason against it, its speed and lag, differences between sources and targets, sample items before and after, the subcommands that are safe now, and its journal. Run all other subcommands with `weir migrate`.",
        &[text("name", "The migration").required()],
    ),
    page(
        "archive",
        "/archive",
        "List archived days or the rows of a day, or preview a restore or an erasure. A preview writes nothing.",
        &[
            text("bucket", "The bucket of the archive; required on AWS"),
            text("table", "Only days of this table; required with `day` and `do`"),
            text("day", "Show the first rows of this UTC day, such as 2026-01-31"),
            number("skip", 1, 1_000_000, "Number of days to skip"),
            choice("do", &["restore", "erase"], "Action to preview for `table`"),
            object("key", "Restore: the key of an item, in plain or DynamoDB JSON"),
            text("where", "Restore: a condition, such as year = 2013"),
            text("dt", "Restore: only items deleted on this UTC day"),
            text(
                "as_of",
                "Restore: only items deleted up to this time, such as 2026-11-21T12:00:00Z",
            ),
            flag("all", "Restore: all items"),
            text("ttl", "Restore: `strip`, or seconds until the items expire [default: strip]"),
            text("equals", "Erase: attributes and the values to match, such as customer=ada"),
            text("begins_with", "Erase: a string attribute and its prefix, such as key=user#7#"),
        ],
    ),
    page(
        "versions",
        "/versions",
        "Show the history of an item, newest version first, 30 at a time. Also show where changes are missing from the history, and the difference between two versions.",
        &[
            text("table", "The table; optional if only one table has histories"),
            object(
                "key",
                "The key of the item, in plain or DynamoDB JSON; if absent, the tool lists keys that have a history",
            ),
            number("from", 0, u64::MAX, "First of two versions to compare"),
            number(
                "to",
                0,
                u64::MAX,
                "Second of two versions to compare [default: the current version]",
            ),
            number("skip", 1, 10_000_000, "Number of newer versions to skip"),
        ],
    ),
    page(
        "counters",
        "/counters",
        "Show sharded counters: each total, the sum of its slots, and the difference.",
        &[
            text("counter", "Only this counter"),
            text("after", "Counter after which the page begins: `next` of the previous page"),
        ],
    ),
    page(
        "copies",
        "/copies",
        "Show fan-out jobs, open and failed jobs first. A job updates the copies of an item after the item changed.",
        &[
            text(
                "table",
                "Table that stores the jobs [default: JOBS_TABLE of the running template]",
            ),
            text("after", "Job after which the page begins: `next` of the previous page"),
        ],
    ),
    action(
        "redrive",
        "/stream/redrive",
        "Invoke a function again with the records of a failure object. The tool `record` shows the key of the object. The object is not deleted.",
        Change { is_destructive: true, is_idempotent: false, runs_code: true },
        &[text("object", "The key of the failure object").required()],
    ),
    action(
        "clock_advance",
        "/clock/advance",
        "Advance the clock of a local store. This cannot be undone: items expire, and waiting records can exceed their maximum age.",
        Change { is_destructive: true, is_idempotent: false, runs_code: false },
        &[choice("by", &["1h", "1d"], "An hour or a day").required()],
    ),
    action(
        "clock_sweep",
        "/clock/sweep",
        "Delete the expired items of a local store: items whose TTL has passed.",
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
        "Resume the backfill of a migration, including segments that were set aside.",
        Change { is_destructive: false, is_idempotent: true, runs_code: false },
        &[text("name", "The migration").required()],
    ),
    action(
        "migration_throttle",
        "/migrations/{name}/throttle",
        "Limit the rate of the backfill of a migration.",
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
