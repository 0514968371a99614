"""Compares the functions' own work with the usual alternatives, on the same batches.

Archive: batches of TTL deletes as Lambda delivers them, to Parquet with zstd: the function
`archive`, boto3's deserializer with pyarrow, and DuckDB, which all write the same columns. Counters:
batches of votes to totals: the function `counters`, and boto3's deserializer with a sum per slot.
No network is involved. The programs run one after the other on one core; the CPU times are compared.
`docs/development/benchmarks.md` explains how to run and read it.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Path, name of the column, type: those of `--declared` in the example `archiving`.
COLUMNS = [
    ("customer", "S", "VARCHAR"), ("status", "S", "VARCHAR"), ("quantity", "N", "BIGINT"),
    ("price", "N", "DECIMAL(38,10)"), ("paid", "BOOL", "BOOLEAN"), ("note", "S", "VARCHAR"),
    ("expires_at", "N", "BIGINT"),
]


def events(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["Records"]


def plain(value):
    """Returns a deserialized value as plain JSON; numbers are unchanged."""
    return json.dumps(value, default=lambda other: float(other) if other % 1 else int(other))


def rows_of(records, deserialize):
    for record in records:
        change = record["dynamodb"]
        item = {name: deserialize(value) for name, value in change["OldImage"].items()}
        yield {
            "pk": item["pk"], "sk": int(item["sk"]), "customer": item["customer"],
            "status": item["status"], "quantity": int(item["quantity"]), "price": item["price"],
            "paid": item["paid"], "note": item["note"], "expires_at": int(item["expires_at"]),
            "tags": plain(item["tags"]), "address": plain(item["address"]),
            "address_city": item["address"]["city"], "_item": json.dumps(change["OldImage"]),
            "_event_id": record["eventID"], "_sequence_number": change["SequenceNumber"],
            "_deleted_at": change["ApproximateCreationDateTime"] * 1000,
            "_stream_arn": record["eventSourceARN"],
        }


def archive_boto3(batches, folder):
    import decimal
    import pyarrow
    import pyarrow.parquet
    from boto3.dynamodb.types import TypeDeserializer

    text, whole = pyarrow.string(), pyarrow.int64()
    types = {
        "sk": whole, "quantity": whole, "expires_at": whole, "paid": pyarrow.bool_(),
        "price": pyarrow.decimal128(38, 10), "_deleted_at": pyarrow.timestamp("ms", "UTC"),
    }
    deserialize, count, size = TypeDeserializer().deserialize, 0, 0
    exact = decimal.Context(prec=38)
    for number, records in enumerate(events(batches)):
        rows = list(rows_of(records, deserialize))
        for row in rows:
            row["price"] = row["price"].quantize(decimal.Decimal("1e-10"), context=exact)
        schema = pyarrow.schema([(name, types.get(name, text)) for name in rows[0]])
        path = Path(folder, f"boto3-{number}.parquet")
        table = pyarrow.Table.from_pylist(rows, schema=schema)
        pyarrow.parquet.write_table(table, path, compression="zstd", compression_level=3)
        count, size = count + len(rows), size + path.stat().st_size
    return count, size


def archive_duckdb(batches, folder):
    import duckdb

    target = Path(folder, "duckdb.parquet")
    typed = ", ".join(
        f"CAST(json_extract_string(i, '$.{name}.{kind}') AS {sql}) AS {name}"
        for name, kind, sql in COLUMNS
    )
    record = (
        "STRUCT(eventID VARCHAR, eventSourceARN VARCHAR, dynamodb STRUCT("
        "ApproximateCreationDateTime BIGINT, SequenceNumber VARCHAR, OldImage JSON))[]"
    )
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET memory_limit = '1GB'")
    connection.execute(f"""COPY (
        SELECT json_extract_string(i, '$.pk.S') AS pk,
            CAST(json_extract_string(i, '$.sk.N') AS BIGINT) AS sk, {typed},
            json_extract_string(i, '$.tags.L') AS tags,
            json_extract_string(i, '$.address.M') AS address,
            json_extract_string(i, '$.address.M.city.S') AS address_city,
            CAST(i AS VARCHAR) AS _item, r.eventID AS _event_id,
            r.dynamodb.SequenceNumber AS _sequence_number,
            make_timestamp(r.dynamodb.ApproximateCreationDateTime * 1000000) AS _deleted_at,
            r.eventSourceARN AS _stream_arn
        FROM (SELECT r, r.dynamodb.OldImage AS i FROM (SELECT unnest(Records) AS r
            FROM read_json('{batches}', format = 'newline_delimited',
                maximum_object_size = 67108864, columns = {{Records: '{record}'}})))
    ) TO '{target}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3)""")
    (count,) = connection.execute(f"SELECT count(*) FROM '{target}'").fetchone()
    return count, target.stat().st_size


def count_boto3(batches, _folder):
    from boto3.dynamodb.types import TypeDeserializer

    deserialize, slots, count = TypeDeserializer().deserialize, {}, 0
    for records in events(batches):
        for record in records:
            image = {k: deserialize(v) for k, v in record["dynamodb"]["NewImage"].items()}
            counter, slot = image["slot"].rsplit("#", 1)
            slots.setdefault(counter, {})[slot] = image["votes"]
            count += 1
        sum(sum(values.values()) for values in slots.values())
    return count, 0


PEERS = {"archive_boto3": archive_boto3, "archive_duckdb": archive_duckdb, "count_boto3": count_boto3}


def peer(name, batches):
    """Runs an alternative in a process of its own, so that its memory can be measured."""
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        count, size = PEERS[name](batches, folder)
        busy = time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"count": count, "busy": busy, "bytes": size, "memory": memory}))


def run_peer(name, batches):
    command = [sys.executable, __file__, "--peer", name, "--batches", batches]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(out)
    return found["count"], found["busy"], found["bytes"] / found["count"], found["memory"] / 1024


def run_ours(binary, *flags):
    out = subprocess.run([binary, *flags], check=True, capture_output=True, text=True).stdout
    count, busy = re.match(r"(\d+) \w+ in ([\d.]+) s", out).groups()
    size = re.search(r"([\d.]+) bytes per record", out)
    memory = int(re.search(r"peak memory (\d+) kB", out).group(1)) / 1024
    return int(count), float(busy), float(size.group(1)) if size else 0.0, memory


def report(rows, records):
    print(f"{'':34}{'records/s on a core':>20}{'bytes/record':>14}{'peak MiB':>10}")
    for name, (count, busy, size, memory) in rows:
        assert count == records, f"{name}: {count} records instead of {records}"
        print(f"{name:34}{count / busy:>20,.0f}{size:>14.1f}{memory:>10.0f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--profile", default="release", help="folder of the examples in target")
    arguments.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    arguments.add_argument("--batches", help=argparse.SUPPRESS)
    arguments = arguments.parse_args()
    if arguments.peer:
        return peer(arguments.peer, arguments.batches)
    examples = ROOT / "target" / arguments.profile / "examples"
    archiving, counting = str(examples / "archiving"), str(examples / "counting")
    count = ["--records", str(arguments.records)]
    with tempfile.TemporaryDirectory() as folder:
        batches = os.path.join(folder, "batches.ndjson")
        inside = [*count, "--folder", folder]
        keys_only = run_ours(archiving, *inside, "--write", batches)
        report(
            [
                ("archive, columns of the keys", keys_only),
                ("archive, columns discovered", run_ours(archiving, *inside, "--discover")),
                ("archive, ten declared columns", run_ours(archiving, *inside, "--declared")),
                ("boto3 + pyarrow, the same columns", run_peer("archive_boto3", batches)),
                ("DuckDB, the same columns", run_peer("archive_duckdb", batches)),
            ],
            arguments.records,
        )
        votes = run_ours(counting, *count, "--write", batches)
        peers = [("counters", votes), ("boto3", run_peer("count_boto3", batches))]
        report(peers, arguments.records)


if __name__ == "__main__":
    main()
