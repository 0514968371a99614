"""Measures the console: its pages with a large table, its event stream at 10,000 records/s, and its cost for the poller.

    python3 tests/benchmarks/console.py --weir target/debug/weir [--items 1000000] [--pairs 5]

It prints one line for each figure, and then whether each goal is met. Its exit code is 1 if a goal is not met.
Compared runs alternate on the same machine, and the goals are ratios: a page of the large table compared with the same
page of a small one, and a poller with an open page compared with one without. So other programs on the machine and the
kind of the build matter little. It starts and ends its own processes, in a temporary folder, and needs Node.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

TEMPLATE = """Transform: AWS::Serverless-2016-10-31
Resources:
  Reader:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: nodejs22.x
      Handler: index.handler
      InlineCode: "exports.handler = async () => {};"
      Timeout: 60
      Events:
        EVENT: {Type: DynamoDB, Properties: {Stream: !GetAtt Items.StreamArn, StartingPosition: TRIM_HORIZON, BatchSize: 10000}}
  Items:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: items
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: k, AttributeType: S}]
      KeySchema: [{AttributeName: k, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
  Few:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: few
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: k, AttributeType: S}]
      KeySchema: [{AttributeName: k, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
"""
PLAN = """migration: copy
kind: restructure
from:
  - table: items
    items:
      - to: copies
        transform: '. + {kind: "item"}'
        key: {p: 'ITEM#{k}'}
"""
COPIES = {
    "TableName": "copies",
    "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
}
KEY = urllib.parse.quote('{"k":{"S":"00000001"}}')
PATTERN = urllib.parse.quote('{"eventName":["INSERT"]}')
LARGE, SMALL = "items", "few"


def pages_of(table):
    """Returns the pages that read a table."""
    return [
        f"/stream?table={table}&limit=100", f"/stream/filter?table={table}&pattern={PATTERN}", f"/tables/{table}",
        f"/tables/{table}?filter=v&filter_type=N&filter_op=%3C&filter_value=0&limit=100", f"/tables/{table}/item?key={KEY}",
        f"/partitions/{table}",
    ]


PAGES = [
    "/pipelines", "/stream", "/tables", "/partitions", "/ring", "/archive", "/versions", "/counters", "/copies", "/migrations",
    # A page of the large table is compared with the same page of the small one.
    *(page for pair in zip(pages_of(LARGE), pages_of(SMALL)) for page in pair),
    # It is the last one, because the console continues to read the streams of a migration for some time.
    "/migrations/copy",
]
# The size of the small table.
FEW = 1_000
# The goals.
PAGE_BYTES_MAX, PAGE_MS_MAX, PAGE_RATIO_MAX, POLLER_RATIO_MIN = 60 * 1024, 50, 1.25, 0.98
BATCH = 25
WRITERS = 4


class Up:
    """A running `weir up`, with a mapping of a name; a new name begins at the oldest record."""

    def __init__(self, weir, folder, event):
        self.weir, self.folder, self.mapping = weir, folder, f"Reader{event}"
        (folder / "template.yaml").write_text(TEMPLATE.replace("EVENT", event))
        (folder / ".weir/running.json").unlink(missing_ok=True)
        ports = [argument for port in ("port", "s3-port", "invoke-port", "console-port") for argument in (f"--{port}", "0")]
        with open(folder / "up.log", "ab") as log:
            self.process = subprocess.Popen([weir, "up", *ports], cwd=folder, stdout=log, stderr=log)
        running = self.until("its start", 120, lambda: self.read("running.json"))
        self.store, self.console = (running[name].removeprefix("http://") for name in ("dynamodb", "console"))

    def read(self, file):
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads((self.folder / ".weir" / file).read_text())

    def until(self, what, seconds, look):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if found := look():
                return found
            time.sleep(0.05)
        raise SystemExit(f"waited in vain for {what}:\n{(self.folder / 'up.log').read_text()[-2000:]}")

    def records_read(self):
        """Returns the number of records that the mapping has read and delivered, and the time of these counts."""
        status = self.read("up/status.json") or {"mappings": []}
        own = [it["totals"] for it in status["mappings"] if it["mapping"] == self.mapping]
        return (own[0]["read"], own[0]["done"], status["taken_ms"]) if own else (0, 0, 0)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def run(self, *arguments):
        subprocess.run([self.weir, *arguments], cwd=self.folder, check=True, capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def ask(connection, operation, body):
    headers = {"x-amz-target": f"DynamoDB_20120810.{operation}", "content-type": "application/x-amz-json-1.0"}
    connection.request("POST", "/", body, headers)
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise SystemExit(f"{operation}: {response.status} {answer}")


def bodies(table, items):
    """Yields the requests that write items, in batches."""
    for batch in range(items.start, items.stop, BATCH):
        keys = range(batch, min(batch + BATCH, items.stop))
        puts = ",".join(f'{{"PutRequest":{{"Item":{{"k":{{"S":"{key:08}"}},"v":{{"N":"{key}"}}}}}}}}' for key in keys)
        yield f'{{"RequestItems":{{"{table}":[{puts}]}}}}'


def write(up, items, rate=None, table=LARGE):
    """Writes items, at most `rate` per second. Returns the seconds that it took."""
    # Made before a run at a rate, so that it does not wait for them.
    left = enumerate(list(bodies(table, items)) if rate else bodies(table, items))
    lock, begun = threading.Lock(), time.monotonic()

    def some(_):
        connection = http.client.HTTPConnection(up.store, timeout=60)
        while True:
            with lock:
                number, body = next(left, (0, None))
            if body is None:
                return
            if rate:
                time.sleep(max(0, begun + number * BATCH / rate - time.monotonic()))
            ask(connection, "BatchWriteItem", body)

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(some, range(WRITERS)))
    return time.monotonic() - begun


def get(connection, path):
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise SystemExit(f"{path}: {response.status} {body[:500]}")
    return body


class Reader(threading.Thread):
    """An open page Pipelines: reads its event stream, and loads the page again when an event says so."""

    def __init__(self, console):
        super().__init__(daemon=True)
        self.console, self.figures, self.events, self.is_open = console, {}, 0, True
        self.start()

    def run(self):
        stream, page = (http.client.HTTPConnection(self.console, timeout=60) for _ in range(2))
        get(page, "/pipelines")
        stream.request("GET", "/events?kind=figures")
        response, kind = stream.getresponse(), b""
        while self.is_open and (line := response.readline()):
            if line.startswith(b"event:"):
                kind = line[6:].strip()
                self.events += 1
                if kind == b"reload":
                    get(page, "/pipelines")
            elif line.startswith(b"data:") and kind == b"figures":
                self.figures.update(json.loads(line[5:]))

    def close(self):
        self.is_open = False
        self.join()


class Counter(http.server.BaseHTTPRequestHandler):
    """A proxy before the store that counts requests and the bytes of their answers."""

    protocol_version = "HTTP/1.1"
    store = None
    asked = collections.Counter()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        connection = http.client.HTTPConnection(self.store, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        self.asked[self.headers.get("x-amz-target", self.path).split(".")[-1]] += 1
        self.asked["bytes"] += len(answer)
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_):
        pass


def requests(up):
    """Returns the requests of each page to the store, and their bytes, counted by a proxy before a second console."""
    Counter.store = up.store
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    proxy.daemon_threads = True
    proxy.handle_error = lambda *_: None  # Connections are reset when the console ends.
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{proxy.server_port}"
    command = [up.weir, "console", "--endpoint", endpoint, "--port", "0"]
    console = subprocess.Popen(command, cwd=up.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next(word for line in console.stdout for word in line.split() if word.startswith("http://127") and word != endpoint)
        connection, counted = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=60), {}
        for page in PAGES:
            # The least of three, because the console also reads in the background.
            for _ in range(3):
                Counter.asked.clear()
                get(connection, page)
                asked = dict(Counter.asked)
                counted[page] = min(counted.get(page, asked), asked, key=lambda it: sum(it.values()) - it["bytes"])
        return counted
    finally:
        console.terminate()
        console.wait()
        proxy.shutdown()


def pages(up, times):
    """Measures each page, all pages in each round."""
    connection, took, sizes = http.client.HTTPConnection(up.console, timeout=60), collections.defaultdict(list), {}
    record = json.loads(get(connection, "/stream.json?table=items&limit=1"))["records"][0]["sequence"]
    for _ in range(times):
        for page in [*PAGES, f"/stream/{record}?table=items"]:
            begun = time.perf_counter()
            sizes[page] = len(get(connection, page))
            took[page].append((time.perf_counter() - begun) * 1_000)
    return {page.replace(record, "RECORD"): (statistics.median(took[page]), sorted(took[page])[int(len(took[page]) * 0.99)], sizes[page]) for page in took}


def show_pages(up, times, items):
    """Measures each page, and compares those of the large table with those of the small one."""
    asked, found = requests(up), pages(up, times)
    for page, (median, p99, size) in found.items():
        own = asked.get(page)
        cost = f"{requests_of(own):4} requests, {own['bytes']:9} bytes from the store" if own else ""
        show(short(page), f"{median:6.1f} ms, p99 {p99:6.1f} ms, {size:6} bytes; {cost}")
    for large, small in zip(pages_of(LARGE), pages_of(SMALL)):
        ratio = found[large][0] / found[small][0]
        show(f"{items} items : {FEW}, {short(large)}", f"{ratio:.2f} times the time")
        # The pages of a stream also read the journal, which grows with the delivered records.
        if large.startswith("/stream"):
            judge(f"{short(large)} takes at most {PAGE_MS_MAX} ms", found[large][0] <= PAGE_MS_MAX)
        else:
            judge(f"{short(large)} does not depend on the items", ratio <= PAGE_RATIO_MAX)
        judge(f"{short(large)} sends as many requests", requests_of(asked[large]) == requests_of(asked[small]))
    judge("no page has more than 60 KB", all(size <= PAGE_BYTES_MAX for _, _, size in found.values()))


def requests_of(asked):
    return sum(asked.values()) - asked["bytes"]


def short(page):
    return page.split("&pattern")[0].split("?key")[0].split("&filter_type")[0]


def live(up, first, rate, seconds):
    """Writes at a rate while an event stream is open, and compares its last counts with what was written."""
    reader, before = Reader(up.console), up.records_read()[0]
    items = range(first, first + rate * seconds)
    took = write(up, items, rate)
    expected = before + len(items)
    up.until("the records to be delivered", 120, lambda: up.records_read()[1] == expected)
    shown = lambda figure: int(reader.figures.get(f"{up.mapping}/{figure}", -1))  # noqa: E731
    up.until("the page's counts", 10, lambda: shown("delivered") == expected)
    show("records/s written, page open", f"{len(items) / took:.0f}")
    show("records missing in the page", f"{expected - shown('read')} of {expected}, after {reader.events} events")
    judge("no record is missing in the page", shown("read") == expected)
    reader.close()


def at_rest(up, seconds, rounds):
    """Shows the processor time of `weir up` at rest, alternately without and with an open page."""

    def used():
        before = up.cpu_seconds()
        time.sleep(seconds)
        return (up.cpu_seconds() - before) / seconds * 1_000

    closed, opened = [], []
    for _ in range(rounds):
        closed.append(used())
        reader = Reader(up.console)
        time.sleep(1)
        opened.append(used())
        reader.close()
    show("at rest, no page open : page open", f"{statistics.median(closed):.1f} : {statistics.median(opened):.1f} ms of CPU per second")


def drain(weir, folder, run, records, is_open):
    """Lets a new mapping read the entire stream, with or without an open page. Returns its records/s, and the
    processor time of `weir up` in µs per record, which depends less on other programs."""
    with Up(weir, folder, f"Run{run}") as up:
        reader = Reader(up.console) if is_open else None
        first = up.until("the first records", 120, lambda: (it := up.records_read())[0] and (*it, up.cpu_seconds()))
        last = up.until("the last record", 1200, lambda: (it := up.records_read())[0] >= records and (*it, up.cpu_seconds()))
        if reader:
            reader.close()
        read = last[0] - first[0]
        return read / (last[2] - first[2]) * 1_000, (last[3] - first[3]) / read * 1e6


def poller(weir, folder, pairs, records):
    closed, opened = [], []
    for pair in range(pairs):
        # The order alternates, so that a machine that becomes slower favours neither of the two.
        for is_open in (False, True) if pair % 2 == 0 else (True, False):
            (opened if is_open else closed).append(drain(weir, folder, 2 * pair + is_open, records, is_open))
    for name, runs in (("no page open", closed), ("page open", opened)):
        rate, cpu = (statistics.median(of) for of in zip(*runs))
        show(f"poller, {name}", f"{rate:.0f} records/s, {cpu:.1f} µs of CPU per record")
    for name, at in (("records/s", 0), ("CPU", 1)):
        ratios = [after[at] / before[at] for before, after in zip(closed, opened)]
        show(f"page open : no page, {name}", f"{statistics.median(ratios):.3f}; each pair " + " ".join(f"{ratio:.3f}" for ratio in ratios))
        if name == "records/s":
            judge("an open page slows the poller by at most 2 %", statistics.median(ratios) >= POLLER_RATIO_MIN)


def show(what, figure):
    print(f"{what:44} {figure}", flush=True)


goals = []


def judge(goal, holds):
    goals.append((goal, holds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", type=pathlib.Path, default=pathlib.Path("target/debug/weir"))
    parser.add_argument("--items", type=int, default=1_000_000, help="items of the large table (default: 1,000,000)")
    parser.add_argument("--times", type=int, default=30, help="requests of each page (default: 30)")
    parser.add_argument("--rate", type=int, default=10_000, help="records per second with an open page (default: 10,000)")
    parser.add_argument("--seconds", type=int, default=20, help="how long these are written (default: 20)")
    parser.add_argument("--pairs", type=int, default=5, help="runs of the poller without and with an open page (default: 5)")
    arguments = parser.parse_args()
    weir = arguments.weir.resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "plan.yaml").write_text(PLAN)
        with Up(weir, folder, "First") as up:
            for table in (LARGE, SMALL):
                write(up, range(FEW), table=table)
            ask(http.client.HTTPConnection(up.store), "CreateTable", json.dumps(COPIES))
            up.run("migrate", "start", "plan.yaml")
            took = write(up, range(FEW, arguments.items))
            show("items/s written", f"{(arguments.items - FEW) / took:.0f}")
            up.until("the records to be delivered", 1200, lambda: up.records_read()[1] >= arguments.items)
            show_pages(up, arguments.times, arguments.items)
            live(up, arguments.items, arguments.rate, arguments.seconds)
            records = up.records_read()[0]
            at_rest(up, 10, 3)
        poller(weir, folder, arguments.pairs, records)
    for goal, holds in goals:
        show(goal, "holds" if holds else "DOES NOT HOLD")
    raise SystemExit(0 if all(holds for _, holds in goals) else 1)


if __name__ == "__main__":
    main()
