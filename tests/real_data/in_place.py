"""Changes in place, on Northwind's orders: an attribute is renamed and becomes a number, another one is filled in; then
all of that is reverted, and a customer is removed from two tables. Meanwhile a writer changes, adds and deletes orders
at a few hundred per second, the function is killed and every batch is delivered twice. The expected content of the
tables is computed here independently."""

import decimal
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import northwind
from running import WEIR

PLANS = {
    "orders-cost": """
migration: orders-cost
kind: in-place
from:
  - table: orders
    transform: 'if has("freight") then .cost = (.freight | tonumber) | del(.freight) else . end | .state //= "open"'
inverse:
  - table: orders
    transform: 'if has("cost") then (if has("freight") then . else .freight = (.cost | tostring) end) | del(.cost, .state) else . end'
segments: 2
function_seconds: 20
""",
    "alfki-leaves": """
migration: alfki-leaves
kind: purge
from:
  - table: customers
    where: '.customerID == "ALFKI"'
  - table: orders
    where: '.customerID == "ALFKI"'
segments: 2
""",
}


def plain(item):
    """Returns an item as Python values; numbers by their value."""
    read = {"S": str, "N": decimal.Decimal}
    return {name: read[kind](text) for name, value in item.items() for kind, text in value.items()}


def found(shop, table):
    pages = shop.client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    items = (plain(item) for page in pages for item in page["Items"])
    return {json.dumps([item[name] for name in northwind.TABLES[table]]): item for item in items}


def truth(shop, table):
    rows = shop.truth.execute("select key, row from item where tbl = ?", (table,))
    return {key: json.loads(row) for key, row in rows}


def migrated(row):
    row = dict(row)
    if "freight" in row:
        row["cost"] = decimal.Decimal(row.pop("freight"))
    return row | {"state": "open"}


def by_value(rows):
    """Returns rows with their freight as a number: the reverse direction writes 1.00 as 1."""
    return {key: row | ({"freight": decimal.Decimal(row["freight"])} if "freight" in row else {})
            for key, row in rows.items()}


def same(expected, stands, what):
    wrong = [key for key in expected.keys() | stands.keys() if expected.get(key) != stands.get(key)]
    assert not wrong, f"{what}: {len(wrong)} wrong, such as {expected.get(wrong[0])}, which is {stands.get(wrong[0])}"


class Migrating:
    """One migration with its workers, while a writer writes."""

    def __init__(self, url, folder, name):
        self.url, self.folder, self.name = url, folder, name
        self.plan = pathlib.Path(folder) / f"{name}.yaml"
        self.plan.write_text(PLANS[name])
        self.kills = 0

    def weir(self, *arguments):
        done = subprocess.run([WEIR, "migrate", *arguments, "--endpoint", self.url], cwd=self.folder,
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def __enter__(self):
        self.log = open(f"{self.folder}/{self.name}.log", "w")
        self.worker = subprocess.Popen(
            [WEIR, "migrate", "start", self.plan, "--endpoint", self.url, "--local-workers", "4",
             "--duplicate-deliveries", "--package", northwind.PACKAGE, "--directory", f"{self.folder}/{self.name}"],
            cwd=self.folder, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 300
        while True:
            time.sleep(0.5)
            # A killed worker's lease expires after some seconds, so a few kills are enough.
            self.kills += northwind.kill_instance(self.worker.pid) if self.kills < 2 else 0
            states = [json.loads(line) for line in self.weir("list", "--output", "ndjson").splitlines()] \
                if self.kills else []
            phases = [state["phase"] for state in states if state.get("migration") == self.name]
            if phases and phases[0] not in ("preparing", "copying"):
                return self
            assert time.monotonic() < deadline, pathlib.Path(self.log.name).read_text()[-3000:]

    def __exit__(self, kind, error, trace):
        if error:
            sys.stderr.write(pathlib.Path(self.log.name).read_text()[-4000:])
        self.worker.terminate()
        self.worker.wait(timeout=60)
        self.log.close()


def run(url, folder):
    started = time.monotonic()
    shop = northwind.Shop(url)
    shop.load()
    loaded = shop.writes
    stop, writing = threading.Event(), threading.Event()
    writing.set()

    def write():
        number = 0
        while not stop.is_set():
            if writing.is_set():
                number += 1
                shop.change(number)
            time.sleep(1 / northwind.PER_SECOND)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Migrating(url, folder, "orders-cost") as migrating:
            verified = migrating.weir("verify", migrating.name).split(";")[0]
            with shop.lock:
                writing.clear()
            switched = migrating.weir("cutover", migrating.name)
            expected = {key: migrated(row) for key, row in truth(shop, "orders").items()}
            same(expected, found(shop, "orders"), "orders after the cut-over")
            # During the revert, old and new writers write.
            writing.set()
            back = migrating.weir("revert", migrating.name)
            with shop.lock:
                writing.clear()
            same(by_value(truth(shop, "orders")), by_value(found(shop, "orders")), "orders after the revert")
            kills = migrating.kills
        writing.set()
        with Migrating(url, folder, "alfki-leaves") as migrating:
            time.sleep(2)
            with shop.lock:
                writing.clear()
            migrating.weir("verify", migrating.name)
            receipt = json.loads(migrating.weir("complete", migrating.name))
            for table in ("customers", "orders"):
                expected = truth(shop, table)
                expected = {key: row for key, row in expected.items() if row.get("customerID") != "ALFKI"}
                same(by_value(expected), by_value(found(shop, table)), f"{table} after the purge")
            assert receipt["left"] == 0 and receipt["tables"]["customers"]["removed"] == 1, receipt
            kills += migrating.kills
        print(f"in_place: {loaded} items loaded, {shop.writes - loaded} changes meanwhile, {kills} processes killed, "
              f"every batch delivered twice")
        print(f"  {verified.strip()}\n  {switched.strip()}\n  {back.strip()}")
        print(f"  purged: {receipt['tables']}\n  all as computed here, {time.monotonic() - started:.0f} s")
    finally:
        stop.set()
        writer.join()


if __name__ == "__main__":
    northwind.main(run)
