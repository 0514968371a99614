//! DynamoDB's limits in one list, with their sources. All maximums and minimums are inclusive.
//!
//! Limits of Weir's own queues and retries are next to the code that they bound. The source of a
//! limit without a source is AWS, "Quotas in Amazon DynamoDB" (`ServiceQuotas`).

/// The maximum size of an item in bytes: its attribute names and values.
pub const ITEM_BYTES_MAX: usize = 400 * 1024;
/// The maximum size of a partition key value in bytes.
pub const PARTITION_KEY_BYTES_MAX: usize = 2048;
/// The maximum size of a sort key value in bytes.
pub const SORT_KEY_BYTES_MAX: usize = 1024;
/// The maximum nesting of maps and lists in an attribute value.
pub const NESTING_LEVELS_MAX: usize = 32;
/// The maximum number of significant digits of a number.
pub const NUMBER_DIGITS_MAX: usize = 38;
/// The maximum decimal exponent of a number's first digit, as in 9.99E+125.
pub const NUMBER_EXPONENT_MAX: i32 = 125;
/// The minimum decimal exponent of a number's first digit, as in 1E-130.
pub const NUMBER_EXPONENT_MIN: i32 = -130;
/// The maximum length of an expression string in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// The maximum number of operators and functions in an expression.
pub const EXPRESSION_OPERATORS_MAX: usize = 300;
/// The maximum number of operands of an `IN`.
pub const IN_OPERANDS_MAX: usize = 100;
/// The maximum size in bytes (2 MB) of all attribute names and values that a request substitutes in
/// its expressions.
pub const SUBSTITUTIONS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The maximum size in bytes of the items that one page of `Query` or `Scan` reads.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// The maximum total size of the items of a transaction in bytes (4 MB).
pub const TRANSACTION_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The time for which a client request token stays valid, in milliseconds (ten minutes).
pub const REQUEST_TOKEN_LIFE_MS: u64 = 10 * 60 * 1000;
/// The maximum number of put and delete requests in a `BatchWriteItem`.
pub const BATCH_WRITE_ITEMS_MAX: usize = 25;
/// The maximum number of keys in a `BatchGetItem`.
pub const BATCH_GET_KEYS_MAX: usize = 100;
/// The maximum number of bytes that a `BatchGetItem` returns. Further keys are unprocessed.
pub const BATCH_GET_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum number of operations of a transaction.
pub const TRANSACTION_OPERATIONS_MAX: usize = 100;
/// The maximum length of a client request token in characters.
pub const REQUEST_TOKEN_LENGTH_MAX: usize = 36;
/// The maximum size of a request body in bytes (16 MB, for `BatchWriteItem`).
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The minimum length of a table name in characters (a-z, A-Z, 0-9, `_`, `-` and `.`).
pub const TABLE_NAME_LENGTH_MIN: usize = 3;
/// The maximum length of a table name in characters.
pub const TABLE_NAME_LENGTH_MAX: usize = 255;
/// The maximum length of an attribute name in bytes.
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 65_535;
/// The maximum length of a key attribute's name in bytes.
pub const KEY_ATTRIBUTE_NAME_BYTES_MAX: usize = 255;
/// The maximum number of tables of an account in one Region.
pub const TABLES_MAX: usize = 2500;
/// The maximum number of local secondary indexes of a table.
pub const LOCAL_INDEXES_MAX: usize = 5;
/// The maximum number of global secondary indexes of a table.
pub const GLOBAL_INDEXES_MAX: usize = 20;
/// The maximum number of attributes in the partition key of a global index. The same maximum
/// applies to its sort key (AWS, "Using global secondary indexes", multi-attribute keys).
pub const INDEX_KEY_ATTRIBUTES_MAX: usize = 4;
/// The maximum number of non-key attributes that an index projects.
pub const NON_KEY_ATTRIBUTES_MAX: usize = 20;
/// The maximum total number of non-key attributes that all indexes of a table project.
pub const PROJECTED_ATTRIBUTES_MAX: usize = 100;
/// The maximum number of names on a `ListTables` page.
pub const LIST_TABLES_MAX: usize = 100;
/// The maximum number of segments of a parallel scan.
pub const SCAN_SEGMENTS_MAX: u32 = 1_000_000;

/// The number of bytes that one write capacity unit covers.
pub const WRITE_UNIT_BYTES: usize = 1024;
/// The number of bytes that one read capacity unit covers in a strongly consistent read.
pub const READ_UNIT_BYTES: usize = 4096;
/// The maximum number of write capacity units per second of a partition.
pub const PARTITION_WRITE_UNITS: u64 = 1000;
/// The maximum number of read capacity units per second of a partition.
pub const PARTITION_READ_UNITS: u64 = 3000;
/// The size at which a partition splits, in bytes (10 GB).
pub const PARTITION_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// The maximum size of an item collection, including its entries in local indexes, in bytes (10
/// GB).
pub const ITEM_COLLECTION_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// The number of partitions of a new on-demand table. Four partitions provide the initial capacity
/// of 4,000 WCU that AWS documents.
pub const ON_DEMAND_PARTITIONS: u32 = 4;

/// The retention of stream records in milliseconds (24 hours).
pub const STREAM_RETENTION_MS: u64 = 24 * 60 * 60 * 1000;
/// The time for which a stream shard accepts records, in milliseconds (about four hours).
pub const SHARD_ROTATION_MS: u64 = 4 * 60 * 60 * 1000;
/// The lifetime of a shard iterator in milliseconds (15 minutes).
pub const ITERATOR_LIFE_MS: u64 = 15 * 60 * 1000;
/// The maximum number of records on a `GetRecords` page (AWS API reference, `GetRecords`).
pub const GET_RECORDS_MAX: usize = 1000;
/// The maximum size of a `GetRecords` page in bytes.
pub const GET_RECORDS_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of shards on a `DescribeStream` page.
pub const DESCRIBE_STREAM_SHARDS_MAX: usize = 100;
/// The maximum number of streams on a `ListStreams` page.
pub const LIST_STREAMS_MAX: usize = 100;

/// The age from which TTL ignores a time of expiry, in seconds (five years; AWS, "Time to Live").
pub const TTL_PAST_SECONDS_MAX: u64 = 5 * 365 * 24 * 60 * 60;
