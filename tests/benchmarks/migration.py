"""Measures the migration of a table during writes: by `weir migrate`, and by a typical script with boto3 (parallel
Scan, BatchWriteItem), in one run on one store. Both targets are compared with the source after the writer has stopped;
differences are lost writes."""

import argparse
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import boto3

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
THREADS = 4
PLAN = """
migration: bench
kind: restructure
from:
  - table: orders
    items:
      - to: {target}
        transform: '. + {{kind: "order"}}'
        key: {{pk: 'CUSTOMER#{{customer}}', sk: 'ORDER#{{id}}'}}
segments: {segments}
"""


class Store:
    """Sends requests without an SDK, so that the writer leaves the cores to the measured programs."""

    def __init__(self, url):
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc)

    def ask(self, operation, body):
        headers = {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0",
            "Authorization": "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, "
                             "SignedHeaders=host, Signature=0"}
        self.connection.request("POST", "/", json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)

    def scan(self, table):
        items, start = [], {}
        while True:
            page = self.ask("Scan", {"TableName": table, "ConsistentRead": True} | start)
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                return items
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def order(number, change):
    """Returns an order of about 300 bytes."""
    return {
        "id": {"S": f"{number:08}"}, "customer": {"S": f"C{number % 5000:05}"}, "change": {"N": str(change)},
        "freight": {"N": f"{number % 997}.25"}, "city": {"S": "Rio de Janeiro"}, "shipped": {"BOOL": number % 2 == 0},
        "note": {"S": "n" * 200}}


def target_of(item):
    """Transforms an order as the plan does, independently."""
    return item | {
        "kind": {"S": "order"}, "pk": {"S": f"CUSTOMER#{item['customer']['S']}"}, "sk": {"S": f"ORDER#{item['id']['S']}"}}


class Writer:
    """Changes, adds and deletes orders at a fixed rate until it is stopped."""

    def __init__(self, url, items, rate):
        self.store, self.count, self.rate = Store(url), items, rate
        self.random, self.writes, self.stopped = random.Random(7), 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        due = time.monotonic()
        while not self.stopped.is_set():
            number, dice = self.random.randrange(self.count), self.random.random()
            if dice < 0.1:
                self.store.ask("DeleteItem", {"TableName": "orders", "Key": {"id": {"S": f"{number:08}"}}})
            else:
                number += self.count if dice < 0.2 else 0
                self.store.ask("PutItem", {"TableName": "orders", "Item": order(number, self.writes + 1)})
            self.writes += 1
            due = max(due + 1 / self.rate, time.monotonic() - 0.1)
            time.sleep(max(0, due - time.monotonic()))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()


def create(store, name, *key):
    store.ask("CreateTable", {
        "TableName": name, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in key],
        "KeySchema": [{"AttributeName": n, "KeyType": kind} for n, kind in zip(key, ["HASH", "RANGE"])]})


def load(store, items):
    for first in range(0, items, 25):
        puts = [{"PutRequest": {"Item": order(n, 0)}} for n in range(first, min(first + 25, items))]
        store.ask("BatchWriteItem", {"RequestItems": {"orders": puts}})


def differences(store, target):
    """Returns the items of the target that are missing, different or extra."""
    expected = {item["id"]["S"]: target_of(item) for item in store.scan("orders")}
    live = (item for item in store.scan(target) if "gone" not in item.get("_weir", {"M": {}})["M"])
    found = {item["id"]["S"]: {name: value for name, value in item.items() if name != "_weir"} for item in live}
    return sum(expected.get(key) != found.get(key) for key in expected.keys() | found.keys())


def script(url):
    """The typical script: boto3, a thread per segment. Runs in a separate process; prints the items, the seconds
    that they took, and the CPU seconds."""
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
    client, counts = boto3.client("dynamodb", endpoint_url=url, **keys), [0] * THREADS

    def copy(segment):
        pages = client.get_paginator("scan").paginate(
            TableName="orders", Segment=segment, TotalSegments=THREADS, ConsistentRead=True)
        for page in pages:
            items = [target_of(item) for item in page["Items"]]
            for first in range(0, len(items), 25):
                left = {"by-script": [{"PutRequest": {"Item": item}} for item in items[first:first + 25]]}
                while left:
                    left = client.batch_write_item(RequestItems=left)["UnprocessedItems"]
            counts[segment] += len(items)

    begun, busy = time.monotonic(), time.process_time()
    threads = [threading.Thread(target=copy, args=(segment,)) for segment in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps([sum(counts), time.monotonic() - begun, time.process_time() - busy]))


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid):
    """Returns the processes of the function that local workers started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "migration" and int(fields.split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def tasks(folder):
    """Returns when the backfill's first task began and its last one ended, and the items read, from its log."""
    begun, ended, read, done = [], [], 0, 0
    for log in (folder / "logs").rglob("*"):
        for line in log.read_text().splitlines() if log.is_file() else []:
            found = re.search(r"\{.*\}", line)
            task = json.loads(found[0]) if found else {}
            if task.get("message") == "task" and task["work"] == "Backfill":
                end = time.mktime(time.strptime(task["timestamp"][:19], "%Y-%m-%dT%H:%M:%S"))
                end += float("0" + task["timestamp"][19:].rstrip("Z"))
                begun.append(end - task["duration_ms"] / 1000)
                ended.append(end)
                read, done = read + task["read"], done + task["done"]
    return (max(ended) - min(begun) if begun else 0), read, done


def migrate(url, store, arguments, folder):
    """Runs `weir migrate` with local workers; returns the items read, the seconds of copying, the seconds since the
    command, and the CPU seconds of the function and of `weir`."""
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.format(target="by-weir", segments=arguments.segments))
    def weir(*verb):
        done = subprocess.run([arguments.binaries / "weir", "migrate", *verb, "--endpoint", url], cwd=folder,
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{verb}: {done.stdout}{done.stderr}"
        return done.stdout

    with open(folder / "worker.log", "w") as log, Writer(url, arguments.items, arguments.rate) as writer:
        begun = time.monotonic()
        worker = subprocess.Popen(
            # The function's binary is next to `weir`; without a package nothing is built.
            [arguments.binaries / "weir", "migrate", "start", plan, "--endpoint", url,
             "--local-workers", str(arguments.workers), "--directory", folder / "work", "--package", folder / "none"],
            cwd=folder, stdout=log, stderr=log, env=os.environ | {"NO_COLOR": "1"})
        try:
            while tasks(folder / "work")[2] < arguments.segments:
                time.sleep(0.5)
                assert worker.poll() is None, (folder / "worker.log").read_text()
            copying, read, _ = tasks(folder / "work")
            total = time.monotonic() - begun
            busy, host = sum(map(cpu_seconds, children(worker.pid))), cpu_seconds(worker.pid)
            weir("wait", "bench")
            writer.stopped.set()
            writer.thread.join()
            compared = weir("verify", "bench")
            return read, copying, total, busy, host, writer.writes, compared
        finally:
            worker.terminate()
            worker.wait(timeout=60)


def measure(url, arguments, folder):
    store = Store(url)
    create(store, "orders", "id")
    create(store, "by-script", "pk", "sk")
    create(store, "by-weir", "pk", "sk")
    load(store, arguments.items)
    # The stream is enabled for the migration, so loaded items have no records in it.
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    store.ask("UpdateTable", {"TableName": "orders", "StreamSpecification": stream})
    row = "{:14}{:>9,}{:>9.2f}{:>12,.0f}{:>17.1f}{:>10,}{:>7}".format
    print(f"{'':14}{'items':>9}{'s':>9}{'items/s':>12}{'client us/item':>17}{'written':>10}{'lost':>7}", flush=True)
    if not arguments.skip_script:
        with Writer(url, arguments.items, arguments.rate) as writer:
            out = subprocess.run([sys.executable, __file__, "--script", url], check=True, capture_output=True, text=True)
        items, seconds, busy = json.loads(out.stdout)
        lost = differences(Store(url), "by-script")
        print(row("boto3", items, seconds, items / seconds, busy / items * 1e6, writer.writes, lost), flush=True)
    items, seconds, total, busy, host, writes, compared = migrate(url, store, arguments, folder)
    # The store has closed the first connection, which was idle.
    lost = differences(Store(url), "by-weir")
    print(row("weir migrate", items, seconds, items / seconds, busy / items * 1e6, writes, lost))
    print(f"  {total:.1f} s from the command on; `weir` itself, which reads the streams: {host:.2f} s of CPU")
    print(f"  {compared.splitlines()[0].strip()}")
    if lost:
        raise SystemExit(f"weir migrate lost {lost} writes")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--items", type=int, default=100_000)
    arguments.add_argument("--rate", type=int, default=200, help="writes per second during the migration")
    arguments.add_argument("--workers", type=int, default=os.cpu_count(), help="local workers (default: one for each core)")
    arguments.add_argument("--segments", type=int, default=4)
    arguments.add_argument("--skip-script", action="store_true", help="only weir migrate")
    arguments.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target" / "release",
                           help="folder of local-store, weir and migration")
    arguments.add_argument("--keep", type=pathlib.Path, help="folder for the logs")
    arguments.add_argument("--script", metavar="URL", help=argparse.SUPPRESS)
    arguments = arguments.parse_args()
    if arguments.script:
        return script(arguments.script)
    arguments.binaries = arguments.binaries.resolve()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        folder = arguments.keep.resolve() if arguments.keep else pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        store = subprocess.Popen(
            [arguments.binaries / "local-store", "--data", folder / "data", "--port", "0"], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=os.environ | {"NO_COLOR": "1"})
        try:
            url = None
            while url is None:
                line = store.stdout.readline()
                assert line, "the store did not start"
                url = (re.search(r"http://[0-9.]+:\d+", line) or [None])[0]
            threading.Thread(target=lambda: [None for _ in store.stdout], daemon=True).start()
            before = cpu_seconds(store.pid)
            measure(url, arguments, folder)
            print(f"  the store, with loading and comparing: {cpu_seconds(store.pid) - before:.1f} s of CPU")
        finally:
            store.terminate()
            store.wait(timeout=60)


if __name__ == "__main__":
    main()
