"""Measures the cost of a store at rest: start, restart, idle CPU time and memory, disk, one connection.

    python3 tests/benchmarks/at_rest.py --binaries target/debug [--pairs 5] [--quiet 60]

It prints one line for each figure. It starts and ends its own processes, in a temporary folder.
"""

import argparse
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

TABLE = {
    "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
ITEM_BYTES = 290
ITEMS = 20_000
LEFTOVER_TABLES = 97


class Store:
    """A running store, and a connection to it."""

    def __init__(self, binaries, folder, replicas):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [binaries / "local-store", "--data", folder, "--port", str(self.port), "--replicas", str(replicas)]
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while True:
            try:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                self.connection.connect()
                break
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    raise SystemExit(f"the store ended with {self.process.returncode}") from None
                time.sleep(0.0005)

    def ask(self, operation, body):
        headers = {"x-amz-target": f"DynamoDB_20120810.{operation}", "content-type": "application/x-amz-json-1.0"}
        self.connection.request("POST", "/", json.dumps(body), headers)
        response = self.connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise SystemExit(f"{operation}: {response.status} {answer}")

    def since_start_ms(self):
        return (time.perf_counter() - self.begun) * 1_000

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("VmRSS")]
        return int(line.split()[1]) * 1024 / 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def disk_mb(folder):
    """Returns the allocated space of a folder, as `du` counts it."""
    return sum(path.stat().st_blocks * 512 for path in pathlib.Path(folder).rglob("*") if path.is_file()) / 1e6


def write(store, name, items):
    """Writes items in batches of 25."""
    requests = [{"PutRequest": {"Item": {"k": {"S": f"{key:08}"}, "v": {"S": "x" * ITEM_BYTES}}}} for key in items]
    for start in range(0, len(requests), 25):
        store.ask("BatchWriteItem", {"RequestItems": {name: requests[start : start + 25]}})


def starts(binaries, pairs, replicas):
    fresh, again, cpu = [], [], []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as folder:
            with Store(binaries, folder, replicas) as store:
                store.ask("CreateTable", {"TableName": "first", **TABLE})
                fresh.append(store.since_start_ms())
                cpu.append(store.cpu_seconds() * 1_000)
            with Store(binaries, folder, replicas) as store:
                store.ask("PutItem", {"TableName": "first", "Item": {"k": {"S": "a"}}})
                again.append(store.since_start_ms())
    show(f"fresh start, {replicas} replicas", f"{statistics.median(fresh):.0f} ms, least {min(fresh):.0f} ms")
    show(f"CPU time of it, {replicas} replicas", f"{statistics.median(cpu):.0f} ms")
    show(f"restart, {replicas} replicas", f"{statistics.median(again):.0f} ms, least {min(again):.0f} ms")


def idle(binaries, seconds):
    with tempfile.TemporaryDirectory() as folder, Store(binaries, folder, 3) as store:
        store.ask("CreateTable", {"TableName": "first", **TABLE})
        show("disk of an empty store", f"{disk_mb(folder):.1f} MB")
        time.sleep(2)
        before = store.cpu_seconds()
        time.sleep(seconds)
        show("CPU time at rest", f"{(store.cpu_seconds() - before) / seconds * 100:.2f} % of a core")
        show("memory at rest", f"{store.resident_mb():.1f} MB")


def leftovers(binaries, seconds):
    with tempfile.TemporaryDirectory() as folder:
        with Store(binaries, folder, 3) as store:
            for number in range(LEFTOVER_TABLES):
                store.ask("CreateTable", {"TableName": f"left-{number:02}", **TABLE})
                write(store, f"left-{number:02}", range(5))
            store.ask("CreateTable", {"TableName": "items", **TABLE})
            for _ in range(10):
                write(store, "items", range(ITEMS))
            show("disk after the writes", f"{disk_mb(folder):.0f} MB")
            time.sleep(seconds)
            live = ITEMS * (ITEM_BYTES + 10) / 1e6
            used = disk_mb(folder)
            show("disk after a quiet time", f"{used:.1f} MB, {used / 3 / live:.1f} times {live:.1f} MB per replica")
        with Store(binaries, folder, 3) as store:
            store.ask("PutItem", {"TableName": "items", "Item": {"k": {"S": "a"}}})
            show("restart of it", f"{store.since_start_ms():.0f} ms")


def one_connection(binaries, pairs):
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as folder, Store(binaries, folder, 3) as store:
            generator = [binaries / "load-generator", "--connections", "1", "--operations", "put", "--duration", "2"]
            store.ask("ListTables", {})
            endpoint = f"http://127.0.0.1:{store.port}"
            asked = ["--endpoint", endpoint, "--server-pid", str(store.process.pid), "--ceiling", "--folder", folder]
            output = subprocess.run(generator + asked, capture_output=True, text=True, check=True).stdout
            rows = [line.split("\t") for line in output.splitlines()[1:]]
            shown = [f"{row[0]} {row[5]} us, {row[9]} us of CPU" for row in rows if row[1] == "put"]
            show("put, one connection", "; ".join(shown))


def show(what, figure):
    print(f"{what:32} {figure}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", type=pathlib.Path, default=pathlib.Path("target/debug"))
    parser.add_argument("--pairs", type=int, default=5, help="starts and runs of each kind (default: 5)")
    parser.add_argument("--quiet", type=float, default=60, help="seconds without a request (default: 60)")
    arguments = parser.parse_args()
    for replicas in (3, 1):
        starts(arguments.binaries, arguments.pairs, replicas)
    idle(arguments.binaries, arguments.quiet)
    leftovers(arguments.binaries, arguments.quiet)
    one_connection(arguments.binaries, arguments.pairs)


if __name__ == "__main__":
    main()
