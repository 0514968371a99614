"""Switches a migration in both directions on several stores during writes, and counts lost writes.

The writers are an application as docs/migration.md requires it: they use examples/migrations/route.py, and
delete and insert every tenth key again, also over a tombstone.

A store is tried if it is available: this project's; the same behind a proxy with two properties of DynamoDB
Local, times of stream records to the minute and older iterators that are refused; MiniStack, if it is
installed; any other whose address STORES names, as in STORES="dynamodb-local=http://127.0.0.1:8000".
The licence of DynamoDB Local allows use only to people who have accepted it and have an AWS account, so this
test neither downloads nor starts it: start yours, and name its address. Ends with a table. A store passes when no acknowledged
write is lost, or when `weir migrate` refuses it, which the table shows with the reason.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
from botocore.config import Config

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "migrations"))
from route import Route, insert  # noqa: E402

PROGRAMS = Path(os.environ.get("PROGRAMS", ROOT / "target" / "debug"))
PLAN = """migration: move
kind: restructure
from:
  - table: cats
    items: [{to: pets}]
inverse:
  - table: pets
    items: [{to: cats}]
segments: 2
gate_seconds: 2
settle_seconds: 3
function_seconds: 10
"""
ITEMS = 200
WRITERS = 4
# Seconds of writes between two steps. With times rounded to the minute, most of them have the time of
# the switch.
BETWEEN_SECONDS = 15
VERB_SECONDS = 240


class Rounding(BaseHTTPRequestHandler):
    """Forwards requests, rounds the times of stream records down to the minute, and refuses an iterator that is older
    than a second if its shard was empty when it was issued."""

    protocol_version = "HTTP/1.1"
    behind = ""
    # The shard of each iterator and the time when it was issued; the shards with records; refused iterators.
    iterators, filled, refused = {}, set(), []

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        operation = self.headers.get("x-amz-target", "").rpartition(".")[2]
        if not operation:
            return self.answer(404, {}, b"{}")
        asked = json.loads(body)
        shard, issued = self.iterators.get(asked.get("ShardIterator"), (asked.get("ShardId"), time.monotonic()))
        if operation == "GetRecords" and shard not in self.filled and time.monotonic() - issued > 1:
            self.refused.append(shard)
            kind = "com.amazonaws.dynamodb.v20120810#TrimmedDataAccessException"
            return self.answer(400, {}, json.dumps({"__type": kind, "message": "an older iterator"}).encode())
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.behind).netloc, timeout=60)
        connection.request("POST", self.path, body, dict(self.headers))
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        if operation == "GetRecords" and response.status == 200:
            page = json.loads(answer)
            if page["Records"]:
                self.filled.add(shard)
            if "NextShardIterator" in page:
                self.iterators[page["NextShardIterator"]] = (shard, time.monotonic())
            for record in page["Records"]:
                made = record["dynamodb"]["ApproximateCreationDateTime"]
                record["dynamodb"]["ApproximateCreationDateTime"] = int(made) // 60 * 60
            answer = json.dumps(page).encode()
        if operation == "GetShardIterator" and response.status == 200:
            self.iterators[json.loads(answer)["ShardIterator"]] = (shard, time.monotonic())
        self.answer(response.status, {"date": response.headers["date"]}, answer)

    do_GET = do_POST

    def date_time_string(self, timestamp=None):
        return ""

    def answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/x-amz-json-1.0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Store:
    """A store that is started for this test, or already running."""

    def __init__(self, name, url, process=None, refused=None):
        """`refused` lists the iterators that the store refused; None if it need not refuse any."""
        self.name, self.url, self.process, self.refused = name, url, process, refused

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def client(url, service="dynamodb"):
    return boto3.client(
        service, endpoint_url=url, region_name="us-east-1", aws_access_key_id="local",
        aws_secret_access_key="local", config=Config(retries={"max_attempts": 3}),
    )


def wait_until(what, holds, seconds=VERB_SECONDS):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.3)


def answers(url):
    try:
        client(url).list_tables()
        return True
    except Exception:
        return False


def own_store(folder):
    log = open(folder / "store.log", "w")
    command = [PROGRAMS / "local-store", "--data", folder / "data", "--port", "0", "--replicas", "1"]
    process = subprocess.Popen(command, stderr=log, stdout=log)
    text = lambda: (folder / "store.log").read_text()
    wait_until("the store's address", lambda: "http://127.0.0.1:" in text(), 60)
    port = text().split("http://127.0.0.1:")[1].split()[0]
    return Store("weir", f"http://127.0.0.1:{''.join(c for c in port if c.isdigit())}", process)


def rounding_store(folder):
    store = own_store(folder)
    own = {"behind": store.url, "iterators": {}, "filled": set(), "refused": []}
    handler = type("Handler", (Rounding,), own)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    return Store("weir, times to the minute", url, store.process, handler.refused)


def ministack(folder):
    own = Path(os.environ.get("TOOLS", "")) / "ministack/bin"
    program = shutil.which("ministack", path=f"{own}:{os.environ['PATH']}")
    if not program:
        return "skipped: `pip install ministack` was not possible"
    port = free_port()
    environment = {**os.environ, "GATEWAY_PORT": str(port), "SERVICES": "dynamodb,dynamodbstreams"}
    environment.update(MINISTACK_HOST="127.0.0.1", BIND_HOST="127.0.0.1")
    log = open(folder / "store.log", "w")
    process = subprocess.Popen([program], env=environment, stdout=log, stderr=log, cwd=folder)
    store = Store("MiniStack", f"http://127.0.0.1:{port}", process)
    wait_until("MiniStack", lambda: answers(store.url), 120)
    return store


class Writer(threading.Thread):
    """Writes to the side that the route names, and keeps acknowledged writes."""

    TABLES = {"source": "cats", "target": "pets"}

    def __init__(self, store, number, stop):
        super().__init__(daemon=True)
        self.client, self.number, self.stop = client(store.url), number, stop
        self.route = Route(self.client, "move")
        self.acknowledged, self.switched, self.inserted, self.failure = {}, 0, 0, None

    def run(self):
        try:
            count = 0
            while not self.stop.is_set():
                self.write(count)
                count += 1
                time.sleep(0.05)
        except Exception as error:
            self.failure = error

    def write(self, count):
        # Every second write is to an existing key.
        key = f"w{self.number}-{count // 2}"
        item = {"p": {"S": key}, "v": {"N": str(count)}}
        side = self.route.write()
        table = self.TABLES[side]
        if count % 20 == 19:
            self.client.delete_item(TableName=table, Key={"p": item["p"]})
            # A switch may come between the two, and the delete then leaves a tombstone on the other side.
            side = self.route.write()
            table = self.TABLES[side]
            self.client.put_item(**insert(table, item, ["p"], "v"))
            self.inserted += 1
        else:
            self.client.put_item(TableName=table, Item=item)
        self.acknowledged[key] = count
        self.switched += side == "target"


def weir(store, folder, *arguments):
    """Runs a command of `weir migrate`; returns its exit code and its output."""
    command = [PROGRAMS / "weir", "migrate", "--endpoint", store.url, *arguments]
    done = subprocess.run(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=VERB_SECONDS,
    )
    with open(folder / "verbs.log", "a") as log:
        log.write(f"$ {' '.join(arguments)}\n{done.stdout}({done.returncode})\n")
    return done.returncode, done.stdout.strip()


def make_tables(store):
    dynamodb = client(store.url)
    for table in ["cats", "pets"]:
        dynamodb.create_table(
            TableName=table, BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
    for number in range(ITEMS):
        dynamodb.put_item(TableName="cats", Item={"p": {"S": f"n{number}"}, "v": {"N": str(number)}})


def lost(store, writers):
    """Returns the acknowledged writes whose value is not in the source."""
    found = {}
    for page in client(store.url).get_paginator("scan").paginate(TableName="cats", ConsistentRead=True):
        found.update((item["p"]["S"], int(item["v"]["N"])) for item in page["Items"] if "v" in item)
    wanted = {f"n{number}": number for number in range(ITEMS)}
    for writer in writers:
        wanted.update(writer.acknowledged)
    return sorted(key for key, value in wanted.items() if found.get(key) != value)


def there_and_back(store, folder):
    """Runs a migration with its switches; returns the written keys, and the lost ones or the reason of a refusal."""
    (folder / "plan.yaml").write_text(PLAN)
    make_tables(store)
    stop = threading.Event()
    row = {"writes": 0, "behind the cut-over": 0}
    log = open(folder / "worker.log", "w")
    command = ["start", "plan.yaml", "--local-workers", "1"]
    worker = subprocess.Popen(
        [PROGRAMS / "weir", "migrate", "--endpoint", store.url, *command],
        cwd=folder, stdout=log, stderr=log,
    )
    writers = []
    try:
        said = lambda: (folder / "worker.log").read_text()
        wait_until("start", lambda: "has started" in said() or worker.poll() is not None)
        if worker.poll() == 4:
            return {**row, "result": said().strip().splitlines()[-1]}
        assert worker.poll() is None, said()
        writers = [Writer(store, number, stop) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for verb in [["wait", "move", "--timeout", "120"], ["verify", "move"], ["cutover", "move"]]:
            code, words = weir(store, folder, *verb)
            if code == 4:
                return {**row, "result": words.splitlines()[-1]}
            assert code == 0, f"{verb}: {code}: {words}\n{said()[-2000:]}"
            # Writers continue between two steps; after the cut-over, their writes must be applied to the source.
            time.sleep(BETWEEN_SECONDS if verb[0] == "cutover" else 1)
        code, words = weir(store, folder, "revert", "move")
        time.sleep(2)
        stop.set()
        for writer in writers:
            writer.join()
            assert writer.failure is None, writer.failure
        row["writes"] = sum(sum(1 for _ in writer.acknowledged) for writer in writers)
        row["behind the cut-over"] = sum(writer.switched for writer in writers)
        assert sum(writer.inserted for writer in writers) > 10, "inserts over tombstones are tried"
        assert row["behind the cut-over"] > 50, row
        if code == 4:
            return {**row, "result": words.splitlines()[-1]}
        assert code == 0, f"revert: {code}: {words}\n{said()[-2000:]}"
        missing = lost(store, writers)
        return {**row, "result": f"{len(missing)} lost", "lost": missing}
    finally:
        stop.set()
        worker.terminate()
        worker.wait()


def tried(name, begin, rows):
    folder = Path(tempfile.mkdtemp(prefix="migrate-stores-"))
    row, store = {"store": name, "failed": False}, None
    try:
        store = begin(folder)
        if isinstance(store, str):
            row["result"] = store
        else:
            row.update(there_and_back(store, folder))
            row["failed"] = bool(row.pop("lost", []))
            assert store.refused is None or store.refused, "no older iterator was refused"
    except Exception as error:
        row.update(result=f"FAILED: {error}", failed=True)
    finally:
        if isinstance(store, Store):
            store.stop()
        if row["failed"]:
            print(f"{name}: its logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        rows.append(row)


def main():
    stores = {
        "weir": own_store, "weir, times to the minute": rounding_store, "MiniStack": ministack,
    }
    for named in os.environ.get("STORES", "").split():
        name, _, url = named.partition("=")
        stores[name] = lambda _, name=name, url=url: Store(name, url)
    wanted = sys.argv[1:]
    rows = []
    threads = [
        threading.Thread(target=tried, args=(name, begin, rows))
        for name, begin in stores.items() if not wanted or name in wanted
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{'store':<28}{'keys written':>14}{'in targets':>12}  result")
    for row in sorted(rows, key=lambda row: row["store"]):
        of = lambda name: row.get(name, "-")
        print(f"{row['store']:<28}{of('writes'):>14}{of('behind the cut-over'):>12}  {row['result']}")
    if "STORES" not in os.environ:
        print("no other store was named; STORES=\"dynamodb-local=URL\" tries DynamoDB Local, which its licence lets only you start")
    sys.exit(any(row["failed"] for row in rows))


main()
