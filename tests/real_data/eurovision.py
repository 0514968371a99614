"""Real votes: loads every point given at Eurovision 2016-2021 into sharded counters while each batch is
delivered twice and the function is killed, and compares the totals with the published results. A third is
counted into 5 slots, then slots grow to 20, and are folded back to 5 while the last third is counted. Then
voters change votes that were counted in slots removed by folding."""

import collections
import csv
import json
import subprocess
import time

from running import DATA, Running, WEIR

POINTS, RESULTS = DATA / "eurovision" / "points.csv", DATA / "eurovision" / "results.csv"


def published():
    """Returns points by year, round, kind and contestant, as published."""
    with open(RESULTS, newline="") as file:
        return {
            (row["year"], row["round"], row["kind"], row["contestant"]): int(row["points"])
            for row in csv.DictReader(file)
        }


def totals(weir):
    """Returns points by the same key from the totals table; `total` is jury and public together."""
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


def thirds(folder):
    """Returns the points in three files, each with the header."""
    header, *lines = POINTS.read_text(encoding="utf-8").splitlines(keepends=True)
    size = -(-len(lines) // 3)
    for number in range(3):
        path = folder / f"points-{number}.csv"
        path.write_text(header + "".join(lines[number * size:(number + 1) * size]), encoding="utf-8")
        yield path


def higher_slots(weir):
    """Returns the slots from number 5 on."""
    for page in weir.dynamodb.get_paginator("scan").paginate(TableName="votes", ConsistentRead=True):
        for item in page["Items"]:
            if int(item["slot"]["S"].rsplit("#", 1)[1]) >= 5:
                yield item["slot"]["S"]


def fold(weir):
    """Runs `weir counters fold --to 5`; returns the number of moved slots."""
    done = subprocess.run(
        [WEIR, "counters", "fold", "--to", "5", "--forget-loads", "--endpoint", weir.dynamodb_url, "--output", "json"],
        cwd=weir.path, capture_output=True, text=True,
    )
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)[0]["folded"]


def vote_with_ballots(weir, slots, seed):
    """Casts 300 votes of the same 60 voters, each of whom has one vote in the poll."""
    subprocess.run(
        [WEIR, "counters", "generate", "--endpoint", weir.dynamodb_url, "--ballots", "ballots", "--prefix", "poll#",
         "--votes", "300", "--voters", "60", "--slots", str(slots), "--seed", str(seed)],
        cwd=weir.path, check=True, capture_output=True,
    )


def ballots_and_totals(weir):
    """Returns the counters of the poll computed from the ballots, and their totals."""
    by_ballots, found = collections.Counter(), collections.Counter()
    for page in weir.dynamodb.get_paginator("scan").paginate(TableName="ballots", ConsistentRead=True):
        for item in page["Items"]:
            by_ballots[item["counter"]["S"]] += int(item["points"]["N"])
    for page in weir.dynamodb.get_paginator("scan").paginate(TableName="totals", ConsistentRead=True):
        for item in page["Items"]:
            if item["counter"]["S"].startswith("poll#"):
                found[item["counter"]["S"]] = int(item["total"]["N"])
    # A counter of 0 equals a missing one.
    return {k: v for k, v in by_ballots.items() if v}, {k: v for k, v in found.items() if v}


def change_votes_after_folding(weir):
    """Changes votes that were counted in 20 slots when 5 are left: no slot reappears, and the totals
    match the ballots."""
    weir.dynamodb.create_table(
        TableName="ballots", BillingMode="PAY_PER_REQUEST", KeySchema=[{"AttributeName": "ballot", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "ballot", "AttributeType": "S"}],
    )
    weir.dynamodb.get_waiter("table_exists").wait(TableName="ballots")
    vote_with_ballots(weir, 20, 1)
    assert list(higher_slots(weir)), "no ballot was counted in a higher slot"
    while list(higher_slots(weir)):
        fold(weir)
    vote_with_ballots(weir, 5, 2)
    assert not list(higher_slots(weir)), f"changed votes brought slots back: {list(higher_slots(weir))}"
    recount = subprocess.run(
        [WEIR, "counters", "recount", "--endpoint", weir.dynamodb_url, "--prefix", "poll#", "--grace", "1"],
        cwd=weir.path, capture_output=True, text=True,
    )
    assert recount.returncode == 0, recount.stdout + recount.stderr

    def are_equal():
        by_ballots, found = ballots_and_totals(weir)
        return by_ballots == found

    weir.wait_until(are_equal, 60, "the totals to equal the ballots")


def main():
    expected = published()
    with Running("--duplicate-deliveries") as weir:
        started = time.monotonic()
        kills, folded, most = 0, 0, 0
        for part, slots in zip(thirds(weir.path), (5, 20, 20)):
            load = subprocess.Popen(
                [WEIR, "load", "--endpoint", weir.dynamodb_url, "--table", "votes", "--format", "csv", part,
                 "--count-into", "{year}#{round}#{kind}#{contestant}", "--voter", "voter", "--amount", "points",
                 "--slots", str(slots)],
                cwd=weir.path,
            )
            last = part.name == "points-2.csv"
            while load.poll() is None:
                time.sleep(0.7)
                kills += weir.kill_function("counters")
                folded += fold(weir) if last else 0
            assert load.returncode == 0, f"weir load ended with {load.returncode}"
            most = max(most, len(list(higher_slots(weir))))
        assert most > 0, "no slot was ever added"
        while list(higher_slots(weir)):
            folded += fold(weir)
        loaded = time.monotonic()
        assert kills > 0, "the function was never running while the votes were loaded"
        weir.wait_until(lambda: not differences(expected, totals(weir)), 120, "the totals to equal the results")
        settled = time.monotonic()
        [counter] = [f"{y}#{r}#{k}#{c}" for (y, r, k, c) in sorted(expected) if k != "total" and expected[y, r, k, c]][:1]
        reads = {
            how: json.loads(subprocess.run(
                [WEIR, "counters", "read", counter, "--how", how, "--endpoint", weir.dynamodb_url, "--output", "json"],
                cwd=weir.path, capture_output=True, text=True, check=True,
            ).stdout)[0]["total"] for how in ("rolled-up", "exact", "fresh")
        }
        assert set(reads.values()) == {str(expected[tuple(counter.split("#"))])}, reads
        # Records still in flight must not change them again.
        time.sleep(3)
        left = differences(expected, totals(weir))
        assert not left, left
        change_votes_after_folding(weir)
        print(
            f"eurovision: 17,490 rows loaded in {loaded - started:.1f} s, {len(expected)} published results equal "
            f"{settled - loaded:.1f} s later; slots grown from 5 to 20 and {folded} folded back while voting, and votes changed after that; each batch delivered twice, {kills} function processes killed"
        )


if __name__ == "__main__":
    main()
