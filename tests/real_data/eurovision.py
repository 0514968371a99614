"""Real votes: loads every point given at Eurovision 2016-2021 into sharded counters while each batch is
delivered twice and the function is killed, and compares the totals with the published results."""

import collections
import csv
import subprocess
import time

from running import DATA, Running, WEIR

POINTS, RESULTS = DATA / "eurovision" / "points.csv", DATA / "eurovision" / "results.csv"


def published():
    """Points by year, round, kind and contestant, as published."""
    with open(RESULTS, newline="") as file:
        return {
            (row["year"], row["round"], row["kind"], row["contestant"]): int(row["points"])
            for row in csv.DictReader(file)
        }


def totals(weir):
    """Points by the same key from the totals table; `total` is jury and public together."""
    found = collections.Counter()
    for page in weir.dynamodb.get_paginator("scan").paginate(TableName="totals", ConsistentRead=True):
        for item in page["Items"]:
            year, round_, kind, contestant = item["counter"]["S"].split("#")
            points = int(item["total"]["N"])
            found[year, round_, kind, contestant] += points
            found[year, round_, "total", contestant] += points
    return found


def differences(expected, found):
    return {key: (points, found.get(key)) for key, points in expected.items() if found.get(key, 0) != points}


def main():
    expected = published()
    with Running("--duplicate-deliveries") as weir:
        started = time.monotonic()
        load = subprocess.Popen(
            [WEIR, "load", "--endpoint", weir.dynamodb_url, "--table", "votes", "--format", "csv", POINTS,
             "--count-into", "{year}#{round}#{kind}#{contestant}", "--voter", "voter", "--amount", "points"],
            cwd=weir.path,
        )
        kills = 0
        while load.poll() is None:
            time.sleep(0.7)
            kills += weir.kill_function("counters")
        assert load.returncode == 0, f"weir load ended with {load.returncode}"
        loaded = time.monotonic()
        assert kills > 0, "the function was never running while the votes were loaded"
        weir.wait_until(lambda: not differences(expected, totals(weir)), 120, "the totals to equal the results")
        settled = time.monotonic()
        # Nothing that is still on its way may change them again.
        time.sleep(3)
        left = differences(expected, totals(weir))
        assert not left, left
        print(
            f"eurovision: 17,490 rows loaded in {loaded - started:.1f} s, {len(expected)} published results equal "
            f"{settled - loaded:.1f} s later; each batch delivered twice, {kills} function processes killed"
        )


if __name__ == "__main__":
    main()
