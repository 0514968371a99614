"""Real documents: lets 1,293 films expire while the function is killed, and reads the archive with DuckDB and
pyarrow: every film once, equal to its source; a film deleted by hand is not in it."""

import collections
import decimal
import json
import time

import duckdb
import pyarrow.dataset

from running import DATA, Running

MOVIES = DATA / "movies" / "moviedata.json"


def to_dynamodb(value):
    """Converts plain JSON to DynamoDB JSON, independently of the product."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, (int, decimal.Decimal)):
        return {"N": decimal.Decimal(value)}
    if isinstance(value, list):
        return {"L": [to_dynamodb(member) for member in value]}
    if isinstance(value, dict):
        return {"M": {name: to_dynamodb(member) for name, member in value.items()}}
    raise TypeError(value)


def canonical(value):
    """Returns DynamoDB JSON in a form in which equal items are equal strings."""
    def numbers(node):
        if isinstance(node, dict):
            if set(node) == {"N"}:
                return {"N": str(decimal.Decimal(str(node["N"])).normalize())}
            return {name: numbers(member) for name, member in node.items()}
        return [numbers(member) for member in node] if isinstance(node, list) else node
    return json.dumps(numbers(value), sort_keys=True)


def main():
    movies = json.loads(MOVIES.read_text(), parse_float=decimal.Decimal)
    with Running("--duplicate-deliveries") as weir:
        weir.load("--table", "movies", "--format", "json", MOVIES, "--expires-in", 3600, "--ttl-attribute", "expires_at")
        by_hand = {"year": {"N": "1900"}, "title": {"S": "Deleted by hand"}}
        weir.dynamodb.put_item(TableName="movies", Item=by_hand | {"expires_at": {"N": "9999999999"}})
        weir.dynamodb.delete_item(TableName="movies", Key=by_hand)
        stored = {}
        for page in weir.dynamodb.get_paginator("scan").paginate(TableName="movies", ConsistentRead=True):
            for item in page["Items"]:
                stored[int(item["year"]["N"]), item["title"]["S"]] = item
        expected = collections.Counter()
        for movie in movies:
            expires = stored[movie["year"], movie["title"]]["expires_at"]
            expected[canonical(to_dynamodb(movie)["M"] | {"expires_at": expires})] += 1
        assert len(stored) == len(expected) == len(movies) == 1293

        weir.advance_clock(2 * 3600)
        started = time.monotonic()
        files = str(next((weir.path / ".weir" / "up" / "s3").glob("*archive*")) / "archive")
        query = f"read_parquet('{files}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
        kills = 0

        def archived():
            nonlocal kills
            if kills == 0:
                kills += weir.kill_function("archive")
            try:
                return duckdb.sql(f"select count(*) from {query}").fetchall()[0][0] >= 1293
            except duckdb.IOException:
                return False

        weir.wait_until(archived, 90, "1,293 films in the archive")
        took = time.monotonic() - started
        assert kills > 0, "the function was not running when the films expired"
        # Redelivered records must not add a row.
        time.sleep(4)
        rows = duckdb.sql(f"select _item, year, title, info_rating, _event_id, _deleted_by, \"table\", dt from {query}")
        types = dict(zip(rows.columns, map(str, rows.types)))
        rows = rows.fetchall()
        assert len(rows) == 1293, len(rows)
        assert len({row[4] for row in rows}) == 1293, "event ids are unique"
        assert collections.Counter(canonical(json.loads(row[0])) for row in rows) == expected
        assert types["year"] == "BIGINT" and types["info_rating"].startswith("DECIMAL"), types
        for item, year, title, rating, _, deleted_by, table, _ in rows:
            item = json.loads(item)
            assert (year, title) == (int(item["year"]["N"]), item["title"]["S"])
            given = item["info"]["M"].get("rating")
            assert rating == (None if given is None else decimal.Decimal(given["N"])), (rating, given)
            assert (deleted_by, table) == ("ttl", "movies")
        dataset = pyarrow.dataset.dataset(files, partitioning="hive").to_table()
        assert collections.Counter(map(canonical, map(json.loads, dataset["_item"].to_pylist()))) == expected
        left = weir.dynamodb.scan(TableName="movies", Select="COUNT")["Count"]
        assert left == 0, f"{left} films are left in the table"
        objects = weir.s3.list_objects_v2(Bucket=next(
            bucket["Name"] for bucket in weir.s3.list_buckets()["Buckets"] if "archive" in bucket["Name"]
        ))["KeyCount"]
        print(
            f"movies: 1,293 of 1,293 films in {objects} Parquet objects {took:.1f} s after they expired, equal for DuckDB "
            f"and pyarrow, each once; each batch delivered twice, {kills} function processes killed"
        )


if __name__ == "__main__":
    main()
