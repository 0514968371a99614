"""Northwind: three tables become one while a writer changes, adds and deletes orders at a few hundred per second,
the function is killed and every batch is delivered twice. The one table is compared with an independent
transform in SQLite; then the migration is reverted and the three tables are compared with what was written."""

import csv
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import boto3

from running import DATA, ROOT, WEIR

STORE = pathlib.Path(os.environ.get("STORE_BINARY", ROOT / "target" / "debug" / "local-store"))
PLAN = ROOT / "examples" / "migrations" / "northwind.yaml"
TABLES = {"customers": ["customerID"], "orders": ["orderID"], "order_details": ["orderID", "productID"]}
PACKAGE = pathlib.Path(os.environ.get("WEIR_PACKAGE", ROOT / "functions" / "processor"))
PER_SECOND = 300


def read(table):
    with open(DATA / "northwind" / f"{table}.csv", newline="") as file:
        return [{name: value for name, value in row.items() if value != "NULL"} for row in csv.DictReader(file)]


def to_item(row):
    return {name: {"S": value} for name, value in row.items()}


class Shop:
    """The tables, a writer of them, and the expected contents: the acknowledged writes, in SQLite."""

    def __init__(self, url):
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
        self.client = boto3.client("dynamodb", endpoint_url=url, **keys)
        self.truth = sqlite3.connect(":memory:", check_same_thread=False)
        self.truth.execute("create table item (tbl text, key text, row text, primary key (tbl, key))")
        self.random = random.Random(7)
        self.writes = 0
        self.lock = threading.Lock()

    def create(self, name, partition, sort=None):
        names = [partition] + ([sort] if sort else [])
        self.client.create_table(
            TableName=name, BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in names],
            KeySchema=[{"AttributeName": n, "KeyType": kind} for n, kind in zip(names, ["HASH", "RANGE"])],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"})

    def load(self):
        for table, key in TABLES.items():
            self.create(table, *key)
            for row in read(table):
                self.put(table, row)
        self.create("shop", "pk", "sk")

    def put(self, table, row):
        self.client.put_item(TableName=table, Item=to_item(row))
        key = json.dumps([row[name] for name in TABLES[table]])
        self.truth.execute("replace into item values (?, ?, ?)", (table, key, json.dumps(row)))
        self.writes += 1

    def delete(self, table, row):
        self.client.delete_item(TableName=table, Key={name: {"S": row[name]} for name in TABLES[table]})
        key = json.dumps([row[name] for name in TABLES[table]])
        self.truth.execute("delete from item where tbl = ? and key = ?", (table, key))
        self.writes += 1

    def some(self, table):
        query = "select row from item where tbl = ? order by key limit 1 offset abs(?) % (select count(*) from item where tbl = ?)"
        return json.loads(self.truth.execute(query, (table, self.random.getrandbits(40), table)).fetchone()[0])

    def change(self, number):
        """Changes an order, its customer as well (so that its key changes), its lines, or a customer."""
        with self.lock:
            dice = self.random.random()
            if dice < 0.3:
                self.put("orders", self.some("orders") | {"freight": f"{self.random.random() * 100:.2f}"})
            elif dice < 0.45:
                customer = self.some("customers")["customerID"]
                self.put("orders", self.some("orders") | {"customerID": customer})
            elif dice < 0.6:
                order = {"orderID": f"N{number}", "customerID": self.some("customers")["customerID"], "freight": "1.00"}
                self.put("orders", order)
                self.put("order_details", {"orderID": order["orderID"], "productID": "11", "quantity": str(number)})
            elif dice < 0.7:
                self.delete("orders", self.some("orders"))
            elif dice < 0.85:
                self.put("order_details", self.some("order_details") | {"quantity": str(number)})
            elif dice < 0.95:
                self.delete("order_details", self.some("order_details"))
            else:
                self.put("customers", self.some("customers") | {"contactName": f"Contact {number}"})

    def change_target(self, number):
        """Makes one change after the cut-over: an order in the new table gets another freight."""
        with self.lock:
            order = self.some("orders") | {"freight": f"{number}.00"}
            item = order | {"pk": f"CUSTOMER#{order['customerID']}", "sk": f"ORDER#{order['orderID']}", "kind": "order"}
            self.client.put_item(TableName="shop", Item=to_item(item))
            self.truth.execute("replace into item values ('orders', ?, ?)",
                               (json.dumps([order["orderID"]]), json.dumps(order)))
            self.writes += 1

    def route(self):
        """Returns the side that writers use now; `None` while they must wait."""
        entry = {"migration": {"S": "northwind"}, "entry": {"S": "ROUTE"}}
        try:
            found = self.client.get_item(TableName="weir-migrations", Key=entry, ConsistentRead=True)
        except self.client.exceptions.ResourceNotFoundException:
            return "source"
        return found.get("Item", {}).get("write", {"S": "source"})["S"]

    def scan(self, table):
        found = []
        for page in self.client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
            live = (item for item in page["Items"] if "gone" not in item.get("_weir", {"M": {}})["M"])
            found += [{name: value["S"] for name, value in item.items() if name != "_weir"} for item in live]
        return found

    def expected_shop(self):
        """Returns the expected content of the one table, computed by SQLite."""
        rows = self.truth.execute("""
            select 'CUSTOMER#' || json_extract(row, '$.customerID') pk, 'PROFILE' sk, 'customer' kind, row
              from item where tbl = 'customers'
            union all
            select 'CUSTOMER#' || json_extract(row, '$.customerID'), 'ORDER#' || json_extract(row, '$.orderID'), 'order', row
              from item where tbl = 'orders'
            union all
            select 'ORDER#' || json_extract(row, '$.orderID'), 'LINE#' || json_extract(row, '$.productID'), 'line', row
              from item where tbl = 'order_details'""")
        return [json.loads(row) | {"pk": pk, "sk": sk, "kind": kind} for pk, sk, kind, row in rows]


def same(expected, found, what):
    canonical = lambda rows: {json.dumps(row, sort_keys=True) for row in rows}
    left, right = canonical(expected), canonical(found)
    assert len(left) == len(expected) and len(right) == len(found), f"{what}: items twice"
    assert left == right, f"{what}: {len(left - right)} missing, such as {list(left - right)[:2]}; " \
                          f"{len(right - left)} too many, such as {list(right - left)[:2]}"


def kill_instance(parent):
    """Ends one process of the function, as kill -9 does."""
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            if fields["Name"].strip() == "migration" and int(fields["PPid"]) == parent:
                os.kill(int(status.parent.name), signal.SIGKILL)
                return 1
        except (OSError, KeyError):
            continue
    return 0


def main(run):
    with tempfile.TemporaryDirectory(prefix="weir-northwind-") as folder:
        store = subprocess.Popen([STORE, "--data", f"{folder}/data", "--port", "0"], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, env=os.environ | {"NO_COLOR": "1"})
        try:
            url = None
            while url is None:
                line = store.stdout.readline()
                assert line, "the store did not start"
                url = (re.search(r"http://[0-9.]+:\d+", line) or [None])[0]
            threading.Thread(target=lambda: [None for _ in store.stdout], daemon=True).start()
            run(url, folder)
        finally:
            store.terminate()
            store.wait(timeout=60)


def run(url, folder):
    started = time.monotonic()
    shop = Shop(url)
    shop.load()
    loaded = shop.writes

    def weir(*arguments, expect=0):
        done = subprocess.run([WEIR, "migrate", *arguments, "--endpoint", url], cwd=folder, capture_output=True, text=True)
        assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    # The local workers' time-out; the reverse direction waits this long before it removes the marks.
    plan = pathlib.Path(folder) / "northwind.yaml"
    plan.write_text(PLAN.read_text() + "function_seconds: 30\n")
    print(weir("plan", plan).split("\n")[1].strip())
    writing, number, sides = threading.Event(), [0], {"source": 0, "none": 0, "target": 0}
    writing.set()
    stop = threading.Event()

    def write():
        """Reads the route regularly, uses the answer for less than `gate_seconds`, and waits while it is `none`."""
        due, asked, side = time.monotonic(), 0, "source"
        while not stop.is_set():
            if writing.is_set():
                if time.monotonic() - asked > 0.5:
                    asked, side = time.monotonic(), shop.route()
                sides[side] += 1
                if side != "none":
                    number[0] += 1
                    (shop.change if side == "source" else shop.change_target)(number[0])
            due = max(due + 1 / PER_SECOND, time.monotonic() - 0.1)
            time.sleep(max(0, due - time.monotonic()))

    writer = threading.Thread(target=write)
    writer.start()
    with open(f"{folder}/worker.log", "w") as log:
        worker = subprocess.Popen(
            [WEIR, "migrate", "start", plan, "--endpoint", url, "--local-workers", "4", "--duplicate-deliveries",
             "--package", PACKAGE], cwd=folder, stdout=log, stderr=log)
        kills = 0
        try:
            deadline = time.monotonic() + 240
            while True:
                time.sleep(1)
                # A killed worker's lease expires after some seconds, so a few kills are enough.
                kills += kill_instance(worker.pid) if kills < 3 else 0
                states = json.loads(weir("list", "--output", "json")) if kills else []
                if states and states[0]["phase"] not in ("preparing", "copying"):
                    break
                assert time.monotonic() < deadline, open(f"{folder}/worker.log").read()[-3000:]
            for _ in range(3):
                time.sleep(1)
                kills += kill_instance(worker.pid)
            live = shop.writes - loaded
            compared = weir("verify", "northwind").split(";")[0]
            # The writer follows the route through the switch, and is stopped afterwards to compare.
            switched = weir("cutover", "northwind")
            time.sleep(2)
            writing.clear()
            time.sleep(1)
            assert all(sides.values()), f"the writer did not follow the route: {sides}"
            same(shop.expected_shop(), shop.scan("shop"), "the shop after the cut-over")

            # Now the new table is written to, and the three tables follow.
            for order in [row for row in shop.scan("shop") if row["kind"] == "order"][:50]:
                item = order | {"freight": "77.77"}
                shop.client.put_item(TableName="shop", Item=to_item(item))
                plain = {name: value for name, value in item.items() if name not in ("pk", "sk", "kind")}
                shop.truth.execute("replace into item values ('orders', ?, ?)",
                                   (json.dumps([plain["orderID"]]), json.dumps(plain)))
            for line in [row for row in shop.scan("shop") if row["kind"] == "line"][:50]:
                shop.client.delete_item(TableName="shop", Key={"pk": {"S": line["pk"]}, "sk": {"S": line["sk"]}})
                key = json.dumps([line["orderID"], line["productID"]])
                shop.truth.execute("delete from item where tbl = 'order_details' and key = ?", (key,))
            # The changes applied so far are compared during writes; changes in flight are checked again.
            came_back = weir("verify", "northwind").split(";")[0]
            assert "0 missing, 0 different, 0 extra" in came_back, came_back
            back = weir("revert", "northwind")
            for table in TABLES:
                rows = shop.truth.execute("select row from item where tbl = ?", (table,))
                same([json.loads(row) for row, in rows], shop.scan(table), f"{table} after the revert")
            marked = shop.client.scan(TableName="orders", FilterExpression="attribute_exists(#w)",
                                      ExpressionAttributeNames={"#w": "_weir"})["Count"]
            assert marked == 0, f"{marked} orders still have marks"
            worker.wait(timeout=30)
            assert kills > 0, "the function was never killed"
            print(f"northwind: {loaded} items loaded, {live} changes while it was migrated, {kills} processes killed, "
                  f"every batch delivered twice, {sides['target']} changes of the targets right after the switch")
            print(f"  {compared.strip()}")
            print(f"  {switched.strip()}\n  {back.strip()}\n  all equal to SQLite, {time.monotonic() - started:.0f} s")
        except BaseException:
            sys.stderr.write(open(f"{folder}/worker.log").read()[-4000:])
            raise
        finally:
            stop.set()
            writer.join()
            worker.terminate()
            worker.wait(timeout=60)


if __name__ == "__main__":
    main(run)
