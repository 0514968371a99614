//! DynamoDB's limits in one list, each with its source.
//!
//! Limits of Weir's own queues and retries are next to the code that they bound. Source by default:
//! AWS, "Quotas in Amazon DynamoDB" (`ServiceQuotas`).

/// Largest item: names and values together, in bytes, inclusive.
pub const ITEM_BYTES_MAX: usize = 400 * 1024;
/// Largest partition key value in bytes, inclusive.
pub const PARTITION_KEY_BYTES_MAX: usize = 2048;
/// Largest sort key value in bytes, inclusive.
pub const SORT_KEY_BYTES_MAX: usize = 1024;
/// Deepest nesting of maps and lists in an attribute value, inclusive.
pub const NESTING_LEVELS_MAX: usize = 32;
/// Significant digits of a number, inclusive.
pub const NUMBER_DIGITS_MAX: usize = 38;
/// Largest decimal exponent of a number's first digit: 9.99E+125, inclusive.
pub const NUMBER_EXPONENT_MAX: i32 = 125;
/// Smallest decimal exponent of a number's first digit: 1E-130, inclusive.
pub const NUMBER_EXPONENT_MIN: i32 = -130;
/// Longest expression string in bytes, inclusive.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// Operators and functions in one expression, inclusive.
pub const EXPRESSION_OPERATORS_MAX: usize = 300;
/// Operands of one `IN`, inclusive.
pub const IN_OPERANDS_MAX: usize = 100;
/// Attribute names and values substituted in all expressions of a request in bytes (2 MB),
/// inclusive.
pub const SUBSTITUTIONS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of items that one page of Query or Scan reads, inclusive.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Items of one transaction together in bytes (4 MB), inclusive.
pub const TRANSACTION_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time for which a client request token is remembered, in milliseconds (ten minutes).
pub const REQUEST_TOKEN_LIFE_MS: u64 = 10 * 60 * 1000;
/// Put and delete requests in one `BatchWriteItem`, inclusive.
pub const BATCH_WRITE_ITEMS_MAX: usize = 25;
/// Keys in one `BatchGetItem`, inclusive.
pub const BATCH_GET_KEYS_MAX: usize = 100;
/// The most bytes that one `BatchGetItem` returns; further keys are unprocessed.
pub const BATCH_GET_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Operations of one transaction, inclusive.
pub const TRANSACTION_OPERATIONS_MAX: usize = 100;
/// Longest client request token in characters, inclusive.
pub const REQUEST_TOKEN_LENGTH_MAX: usize = 36;
/// Bytes of one request body (16 MB, for `BatchWriteItem`).
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Shortest table name in characters (a-z, A-Z, 0-9, `_`, `-` and `.`), inclusive.
pub const TABLE_NAME_LENGTH_MIN: usize = 3;
/// Longest table name in characters, inclusive.
pub const TABLE_NAME_LENGTH_MAX: usize = 255;
/// Longest attribute name in bytes, inclusive.
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 65_535;
/// Longest key attribute name in bytes, inclusive.
pub const KEY_ATTRIBUTE_NAME_BYTES_MAX: usize = 255;
/// Tables of one account and Region.
pub const TABLES_MAX: usize = 2500;
/// Local secondary indexes of one table, inclusive.
pub const LOCAL_INDEXES_MAX: usize = 5;
/// Global secondary indexes of one table, inclusive.
pub const GLOBAL_INDEXES_MAX: usize = 20;
/// Maximum number of attributes in the partition key of a global index, inclusive; the same maximum
/// applies to its sort key (AWS, "Using global secondary indexes", multi-attribute keys).
pub const INDEX_KEY_ATTRIBUTES_MAX: usize = 4;
/// Non-key attributes that one index projects, inclusive.
pub const NON_KEY_ATTRIBUTES_MAX: usize = 20;
/// Non-key attributes that all indexes of a table project together, inclusive.
pub const PROJECTED_ATTRIBUTES_MAX: usize = 100;
/// Names on one `ListTables` page, inclusive.
pub const LIST_TABLES_MAX: usize = 100;
/// Segments of one parallel scan, inclusive.
pub const SCAN_SEGMENTS_MAX: u32 = 1_000_000;

/// Bytes of one write capacity unit.
pub const WRITE_UNIT_BYTES: usize = 1024;
/// Bytes of one read capacity unit of a strongly consistent read.
pub const READ_UNIT_BYTES: usize = 4096;
/// Write capacity units per second of one partition.
pub const PARTITION_WRITE_UNITS: u64 = 1000;
/// Read capacity units per second of one partition.
pub const PARTITION_READ_UNITS: u64 = 3000;
/// Size at which a partition splits, in bytes (10 GB).
pub const PARTITION_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// Bytes of one item collection including its entries in local indexes (10 GB), inclusive.
pub const ITEM_COLLECTION_BYTES_MAX: u64 = 10 * 1024 * 1024 * 1024;
/// Partitions of a new on-demand table (design: four, as AWS describes for 4,000 WCU of start-up capacity).
pub const ON_DEMAND_PARTITIONS: u32 = 4;

/// Retention of stream records in milliseconds (24 hours).
pub const STREAM_RETENTION_MS: u64 = 24 * 60 * 60 * 1000;
/// Time for which a stream shard accepts records, in milliseconds (about four hours).
pub const SHARD_ROTATION_MS: u64 = 4 * 60 * 60 * 1000;
/// Lifetime of a shard iterator in milliseconds (15 minutes).
pub const ITERATOR_LIFE_MS: u64 = 15 * 60 * 1000;
/// Records of one `GetRecords` page, inclusive (AWS API reference, `GetRecords`).
pub const GET_RECORDS_MAX: usize = 1000;
/// Bytes of one `GetRecords` page.
pub const GET_RECORDS_BYTES_MAX: usize = 1024 * 1024;
/// Shards of one `DescribeStream` page, inclusive.
pub const DESCRIBE_STREAM_SHARDS_MAX: usize = 100;
/// Streams of one `ListStreams` page, inclusive.
pub const LIST_STREAMS_MAX: usize = 100;

/// Age from which a TTL value is ignored, in seconds (five years; AWS, "Time to Live").
pub const TTL_PAST_SECONDS_MAX: u64 = 5 * 365 * 24 * 60 * 60;
