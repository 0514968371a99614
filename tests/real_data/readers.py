"""Tests other projects' readers of Parquet on one archive: 1,293 films and generated items with every type, in parts of the
function `archive`, then in objects of compaction. Each reader uses the call of the table in docs/archive.md and must
find every item once, every column, and exact values. Spark needs Java 17. `WEIR_READERS=all` adds Spark 3.5 and 4 to 3.3."""

import base64
import collections
import decimal
import glob
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import chdb
import datafusion
import duckdb
import fastparquet
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

from running import DATA, ROOT, WEIR, Running, template_text

# The compared columns of each row.
WANTED = ("title", "_item", "i", "d38", "price_n", "bin_b", "flag_bool", "_deleted_at", "_coercions", "dt")
COLUMNS = "info.rating:decimal(4,1),i:bigint,d9:decimal(9,2),d38:decimal(38,0),*"
# The oldest one supports the fewest encodings. It does not run on newer versions of Python.
SPARKS = ["3.3.4" if sys.version_info < (3, 12) else "3.5.8"]
if os.environ.get("WEIR_READERS") == "all":
    SPARKS += [version for version in ("3.5.8", "4.3.0") if version not in SPARKS]
MADE = 300
LARGE_BYTES = 250_000


def template(folder):
    """Returns the project's template with columns of every type, declared and discovered."""
    text = template_text(folder)
    before = 'Default: "info.rating:decimal(4,1),info.release_date:string"'
    assert before in text, "the template declares other columns by now"
    path = folder / "template.yaml"
    path.write_text(text.replace(before, f'Default: "{COLUMNS}"'), encoding="utf-8")
    return path


def made_item(number, chance):
    """Returns an item of every type. Attributes differ between items, so parts differ in columns; every fifth item is
    large, so a chunk has many pages."""
    digits = lambda count: str(chance.randrange(10 ** (count - 1), 10**count))
    item = {
        "year": {"N": str(3000 + number % 7)}, "title": {"S": f"made {number} é😀 \\ \""},
        "d9": {"N": f"{chance.randrange(10**9)}e-2"}, "d38": {"N": chance.choice(["", "-"]) + digits(38)},
        "price": {"N": f"{digits(28)}.{digits(10)}"}, "flag": {"BOOL": number % 3 == 0},
        "bin": {"B": base64.b64encode(chance.randbytes(number % 65)).decode()},
        "tags": {"SS": ["a", f"b{number}"]}, "sizes": {"NS": ["1", digits(38)]}, "blobs": {"BS": ["AA=="]},
        "doc": {"M": {"x": {"L": [{"N": "1.5"}, {"NULL": True}]}}}, "list": {"L": [{"S": "é"}]},
    }
    # A number that does not fit into a column of 64 bits is NULL there, and listed.
    item["i"] = {"N": digits(25)} if number % 11 == 0 else {"N": str(chance.randrange(-(2**63), 2**63))}
    for name in ("i", "d9", "flag", "bin"):
        if number % 7 == 0:
            item[name] = {"NULL": True}
        elif number % 13 == 0:
            del item[name]
    for wide in range(40):
        item[f"wide_{(number // 50 * 40 + wide) % 200}"] = {"S": f"{wide} of {number}"}
    if number % 5 == 0:
        item["large"] = {"S": base64.b64encode(chance.randbytes(LARGE_BYTES)).decode()}
    return item


def expected_row(item, coerced):
    """Returns the row that a reader must find for an item, computed independently."""
    number = lambda name: decimal.Decimal(item[name]["N"]) if "N" in item.get(name, {}) else None
    whole = number("i")
    binary = item.get("bin", {}).get("B")
    return (
        item["title"]["S"], None if whole is None or coerced else int(whole), number("d38"), number("price"),
        None if binary is None else base64.b64decode(binary).hex(), item.get("flag", {}).get("BOOL"),
    )


def text_digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def comparable(rows):
    """Returns a reader's rows in a common form, that of `WANTED`, whatever its types are."""
    def of(row):
        title, item, whole, d38, price, binary, flag, deleted, coercions, day = row
        missing = lambda value: value is None or value is pandas.NA or value is pandas.NaT or value != value
        return (
            title, item if len(item) == 64 else text_digest(item), None if missing(whole) else int(whole),
            None if missing(d38) else decimal.Decimal(d38), None if missing(price) else decimal.Decimal(price),
            None if missing(binary) else binary if isinstance(binary, str) else bytes(binary).hex(),
            None if missing(flag) else bool(flag),
            deleted if isinstance(deleted, int) else round(pandas.Timestamp(deleted).timestamp() * 1000),
            tuple(coercions), str(day)[:10],
        )
    return collections.Counter(map(of, rows))


def files_of(place):
    return sorted(glob.glob(f"{glob.escape(str(place))}/**/*.parquet", recursive=True))


def schema_of(place):
    """Returns the union of all files' columns, as in docs/archive.md."""
    form = {"format": "parquet", "partitioning": "hive"}
    first = pyarrow.dataset.dataset(place, **form)
    return pyarrow.unify_schemas([first.schema, *(part.physical_schema for part in first.get_fragments())])


def with_duckdb(place):
    pattern = "".join(f"[{c}]" if c in "[*?" else c for c in str(place))
    table = duckdb.sql(f"from read_parquet('{pattern}/**/*.parquet', hive_partitioning = true, union_by_name = true)")
    return table.columns, table.select(*(f'"{name}"' for name in WANTED)).fetchall()


def with_pyarrow(place):
    table = pyarrow.dataset.dataset(place, schema=schema_of(place), format="parquet", partitioning="hive").to_table()
    return table.column_names, [tuple(row.values()) for row in table.select(WANTED).to_pylist()]


def by_ddl(engine, place):
    """Returns the result of the statement of `weir archive ddl`."""
    ddl = [WEIR, "archive", "ddl", "--table", "movies", "--engine", engine, "--folder", place.parent]
    statement = subprocess.run(ddl, capture_output=True, text=True, check=True, cwd=place).stdout
    names = {}
    exec(statement, names)
    return names["movies_archive"]


def with_pandas(place):
    frame = by_ddl("pandas", place)
    return list(frame.columns), frame[list(WANTED)].itertuples(index=False, name=None)


def with_polars(place):
    frame = by_ddl("polars", place).collect()
    return frame.columns, frame.select(WANTED).iter_rows()


def with_fastparquet(place):
    frames = []
    for file in files_of(place):
        frame = fastparquet.ParquetFile(file).to_pandas()
        frames.append(frame.assign(dt=pathlib.Path(file).parent.name.removeprefix("dt=")))
    frame = pandas.concat(frames)
    # Its decimals are binary fractions, so the exact value is the one in `_item`; `_deleted_at` is in UTC.
    for name, path in (("d38", "d38"), ("price_n", "price")):
        exact = [json.loads(item).get(path, {}).get("N") for item in frame["_item"]]
        for binary, value in zip(frame[name], exact):
            near = value is not None and abs(float(value) - binary) <= abs(binary) * 1e-12
            assert near or (value is None and binary != binary), f"fastparquet: {name} {binary} {value}"
        frame[name] = exact
    return list(frame.columns), frame[list(WANTED)].itertuples(index=False, name=None)


def with_datafusion(place):
    context = datafusion.SessionContext()
    context.register_parquet("archive", str(place), table_partition_cols=[("dt", pyarrow.string())])
    table = context.sql("select * from archive").to_arrow_table()
    return table.column_names, [tuple(row.values()) for row in table.select(WANTED).to_pylist()]


def with_clickhouse(place):
    source = f"file('{place}/**/*.parquet', Parquet)"
    settings = "settings use_hive_partitioning = 1, schema_inference_mode = 'union'"
    described = json.loads(str(chdb.query(f"describe {source} {settings}", "JSONCompact")))["data"]
    exact = {"i": "toString(i)", "d38": "toString(d38)", "price_n": "toString(price_n)", "bin_b": "lower(hex(bin_b))",
             "_deleted_at": "toString(toUnixTimestamp64Milli(_deleted_at))", "dt": "toString(dt)"}
    names = ", ".join(exact.get(name, f'"{name}"') for name in WANTED)
    lines = str(chdb.query(f"select {names} from {source} {settings}", "JSONCompactEachRow")).splitlines()
    rows = [json.loads(line) for line in lines]
    return [name for name, *_ in described], [[*row[:7], int(row[7]), *row[8:]] for row in rows]


READERS = {
    f"DuckDB {duckdb.__version__}": with_duckdb,
    f"pyarrow {pyarrow.__version__}": with_pyarrow,
    f"pandas {pandas.__version__}": with_pandas,
    f"polars {polars.__version__}": with_polars,
    f"fastparquet {fastparquet.__version__}": with_fastparquet,
    f"DataFusion {datafusion.__version__}": with_datafusion,
    f"ClickHouse (chdb {chdb.__version__})": with_clickhouse,
}


def spark_answers(version, places, folder):
    """Returns the rows that a separate Spark reads. It is installed by name, in its own folder."""
    installed = ROOT / "target" / f"pyspark-{version}"
    if not installed.exists():
        # Files of an interrupted installation.
        shutil.rmtree(f"{installed}.new", ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}"]
        subprocess.run([*pip, "--target", f"{installed}.new"], check=True)
        pathlib.Path(f"{installed}.new").rename(installed)
    out = folder / f"spark-{version}.json"
    environment = os.environ | {"PYTHONPATH": str(installed), "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}
    script = pathlib.Path(__file__).with_name("spark_reader.py")
    done = subprocess.run([sys.executable, script, out, json.dumps(WANTED), *places], env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, f"Spark {version}:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def check(reader, columns, rows, expected, union, seconds):
    missing = union - set(columns)
    assert not missing, f"{reader}: no columns {sorted(missing)[:5]} and {len(missing)} in all"
    found = comparable(rows)
    lacking, more = expected - found, found - expected
    assert not lacking and not more, f"{reader}: lacks {list(lacking)[:1]}, has {list(more)[:1]}; {len(lacking)} and {len(more)}"
    print(f"  {reader}: {found.total()} rows, {len(union)} columns, {seconds:.1f} s")


def check_all(what, place, expected):
    files = files_of(place)
    schemas = {file: pyarrow.parquet.read_schema(file) for file in files}
    union = {name for schema in schemas.values() for name in schema.names}
    size = sum(pathlib.Path(file).stat().st_size for file in files)
    print(f"{what}: {len(files)} objects, {size} bytes, {len(union)} columns in {len({tuple(s.names) for s in schemas.values()})} schemas")
    for reader, read in READERS.items():
        began = time.monotonic()
        columns, rows = read(place)
        check(reader, columns, rows, expected, union, time.monotonic() - began)
    return union


def main():
    chance = random.Random(11)
    films = json.loads((DATA / "movies" / "moviedata.json").read_text(), parse_float=decimal.Decimal)
    with Running(template=template) as weir:
        weir.load("--table", "movies", "--format", "json", DATA / "movies" / "moviedata.json",
                  "--expires-in", 3600, "--ttl-attribute", "expires_at")
        stored = weir.dynamodb.scan(TableName="movies", Limit=1, ConsistentRead=True)["Items"][0]
        expires = int(stored["expires_at"]["N"])
        for number in range(MADE):
            # Two days, and so two partitions.
            over = expires if number < MADE / 2 else expires + 86_400
            item = made_item(number, chance) | {"expires_at": {"N": str(over)}}
            weir.dynamodb.put_item(TableName="movies", Item=item)
        count = len(films) + MADE
        place = next((weir.path / ".weir" / "up" / "s3").glob("*archive*")) / "archive" / "table=movies"

        def archived(wanted):
            rows = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files_of(place))
            return rows >= wanted

        # A separate part with one row: empty lists, and a column that is all NULL.
        lone = {"year": {"N": "1"}, "title": {"S": "lone"}, "i": {"NULL": True}, "d38": {"N": "1"}, "price": {"N": "0.5"}}
        # Weir's own marks are not archived.
        marks = {"_from_r": {"S": '{"S":"o"}@l/' + "7".zfill(40) + " 1"}, "_weir_touch": {"S": "m"}}
        weir.dynamodb.put_item(TableName="movies", Item=lone | marks | {"expires_at": {"N": str(expires - 3000)}})
        count += 1
        weir.advance_clock(900)
        weir.wait_until(lambda: archived(1), 60, "the first row in the archive")
        weir.advance_clock(2 * 3600)
        weir.wait_until(lambda: archived(count - MADE // 2), 120, "the first day in the archive")
        weir.advance_clock(86_400)
        weir.wait_until(lambda: archived(count), 120, "the second day in the archive")

        # `movies` compares `_item` with the sources; here the columns are compared with `_item`.
        expected, keys = [], collections.Counter()
        for file in files_of(place):
            day = pathlib.Path(file).parent.name.removeprefix("dt=")
            table = pyarrow.parquet.read_table(file, columns=["_item", "_deleted_at", "_coercions"]).to_pylist()
            for row in table:
                item = json.loads(row["_item"])
                assert not marks.keys() & item.keys(), item
                coerced = any(text.startswith("i:") for text in row["_coercions"])
                assert coerced == (len(item.get("i", {}).get("N", "")) > 20), row["_coercions"]
                title, *values = expected_row(item, coerced)
                keys[item["year"]["N"], title] += 1
                expected.append((title, row["_item"], *values, row["_deleted_at"], row["_coercions"], day))
        assert keys.total() == len(keys) == count, keys.most_common(3)
        expected = comparable(expected)

        parts = weir.path / "parts" / "table=movies"
        shutil.copytree(place, parts)
        union = check_all("parts of the function", parts, expected)
        assert not [name for name in union if name.startswith(("_from_", "_weir", "_restored"))], union
        subprocess.run([WEIR, "archive", "compact", "--table", "movies", "--nothing-is-archiving"], cwd=weir.path,
                       check=True, stdout=subprocess.DEVNULL)
        compacted = weir.path / "compacted" / "table=movies"
        shutil.copytree(place, compacted)
        assert any("compact-" in file for file in files_of(compacted)) and len(files_of(compacted)) < len(files_of(parts))
        assert check_all("objects of compaction", compacted, expected) == union
        if not shutil.which("java"):
            print("SKIPPED: Spark: no `java` on the path")
            return
        for version in SPARKS:
            for answer in spark_answers(version, [str(parts), str(compacted)], weir.path):
                check(f"{answer['reader']} ({pathlib.Path(answer['place']).parent.name})", answer["columns"],
                      answer["rows"], expected, union, answer["seconds"])


if __name__ == "__main__":
    main()
