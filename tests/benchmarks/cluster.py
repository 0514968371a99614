"""Measures the work of each node in stores of 3, 5 and 9 processes, and what joins and leaves cost under load.

    python3 tests/benchmarks/cluster.py --binaries target/release [--nodes 3,5,9] [--seconds 10] [--state-mb 100]

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
import threading
import time

ARCS = 24
REPLICAS = 3
# Enough for an election and the start of nine processes on two busy cores.
PATIENCE_SECONDS = 120
TABLE = {
    "TableName": "ballast",
    "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
ITEM_BYTES = 40_000
# Connections of the load with a fixed rate; more than the writes that are in flight.
CLIENTS = 12
# A leader transfers the leadership to the preferred leader after ten seconds.
BALANCED_SECONDS = 15


def free_ports(count):
    """Returns ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Node:
    """A process with one node of the store."""

    def __init__(self, cluster, number, joins):
        self.number, self.port = number, cluster.ports[number]
        named = [number, 1] if joins else cluster.founders
        peers = [flag for each in named for flag in ("--peer", f"{each}=127.0.0.1:{cluster.peer_ports[each]}")]
        command = [cluster.binaries / "local-store", "--node", str(number), *peers, "--port", str(self.port)]
        command += ["--data", cluster.folder / f"data-{number}", "--arcs", str(ARCS)]
        self.log = (cluster.folder / f"log-{number}").open("w")
        self.process = subprocess.Popen(command + (["--join"] if joins else []), stderr=self.log)

    def ask(self, method, path, body=None, target=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"x-amz-target": f"DynamoDB_20120810.{target}"} if target else {}
        headers["content-type"] = "application/x-amz-json-1.0"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise SystemExit(f"{target or path}: {answer.status} {text}")
        return json.loads(text)

    def status(self):
        return self.ask("GET", "/_weir/status")

    def cpu_us(self):
        """Returns the CPU time of the process in microseconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000 / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Cluster:
    """Running nodes of one store."""

    def __init__(self, binaries, folder, size, spare=0):
        self.binaries, self.folder = binaries, pathlib.Path(folder)
        numbers = range(1, size + spare + 1)
        ports = free_ports(2 * len(numbers))
        self.ports = dict(zip(numbers, ports))
        self.peer_ports = dict(zip(numbers, ports[len(numbers):]))
        self.founders = list(range(1, size + 1))
        self.nodes = {number: Node(self, number, joins=False) for number in self.founders}
        self.rest()

    def ring(self):
        """Returns the ring, or None while the node does not answer."""
        try:
            return self.nodes[1].status()["ring"]
        except (OSError, http.client.HTTPException):
            return None

    def rest(self):
        """Waits until the ring has exactly the running nodes, and no arc moves."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            ring = self.ring()
            if ring and {node["node"] for node in ring["nodes"]} == set(self.nodes):
                if all(arc["voters"] is not None and not arc["moves"] for arc in ring["arcs"]):
                    return ring
            time.sleep(0.1)
        raise SystemExit(f"the ring is not at rest after {PATIENCE_SECONDS} s: {ring}")

    def join(self, number):
        self.nodes[number] = Node(self, number, joins=True)
        return self.rest()

    def leave(self, number):
        self.nodes[1].ask("POST", "/_weir/ring/leave", {"node": number})
        leaving = self.nodes.pop(number)
        ring = self.rest()
        sent = leaving.status()["sent_state_bytes"]
        leaving.end()
        return ring, sent

    def work(self):
        """Returns for each node: CPU time in us, bytes and number of the log's syncs, bytes sent to other nodes."""
        work = []
        for number, node in self.nodes.items():
            status = node.status()
            # All replicas of a node share its log.
            own = next(replica for replica in status["replicas"] if replica["node"] == number)
            work.append((node.cpu_us(), own["log_synced_bytes"], own["log_syncs"], status["sent_to_peers_bytes"]))
        return work

    def sent_state_bytes(self):
        return sum(node.status()["sent_state_bytes"] for node in self.nodes.values())

    def generator(self, operation, seconds):
        command = [self.binaries / "load-generator", "--endpoint", f"http://127.0.0.1:{self.ports[1]}"]
        command += ["--operations", operation, "--connections", "64", "--duration", str(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            node.end()


def result(generator):
    """Waits for the load generator; returns its only row, and ends with its message if it failed."""
    output, notes = generator.communicate()
    if generator.returncode != 0:
        raise SystemExit(notes)
    row = output.splitlines()[1].split("\t")
    return {"requests": int(row[3]), "per_second": float(row[4]), "p99_ms": float(row[6]) / 1_000,
            "errors": int(row[8]), "notes": notes}


def write_at(ports, thread, until, period, done):
    """Writes items of 300 bytes at the nodes in turn, one in each period, and appends the number of acknowledged writes."""
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in ports]
    headers = {"x-amz-target": "DynamoDB_20120810.PutItem", "content-type": "application/x-amz-json-1.0"}
    due, count = time.monotonic() + period * thread / CLIENTS, 0
    while due < until:
        time.sleep(max(0, due - time.monotonic()))
        item = {"k": {"S": f"{thread}-{count % 1000}"}, "v": {"S": "x" * 290}}
        connection = connections[(count + thread) % len(connections)]
        connection.request("POST", "/", json.dumps({"TableName": "ballast", "Item": item}), headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"PutItem: {answer.status}")
        count += 1
        due += period
    done.append(count)


def cost(binaries, size, seconds, rate):
    """Prints the work of a node for each acknowledged write, at a fixed rate of writes over all nodes."""
    with tempfile.TemporaryDirectory() as folder, Cluster(binaries, folder, size) as cluster:
        cluster.nodes[1].ask("POST", "/", TABLE, "CreateTable")
        # Until each node leads its share of the arcs.
        time.sleep(BALANCED_SECONDS)
        before, done = cluster.work(), []
        ports, until = list(cluster.ports.values()), time.monotonic() + seconds
        clients = [
            threading.Thread(target=write_at, args=(ports, thread, until, CLIENTS / rate, done))
            for thread in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        after = cluster.work()
        if len(done) < CLIENTS:
            raise SystemExit("a client failed")
        writes = sum(done)
        work = [statistics.mean(end[kind] - begin[kind] for begin, end in zip(before, after)) / writes
                for kind in range(4)]
        cpu, synced, syncs, sent = work
        show(f"{size} nodes", f"{writes / seconds:.0f} writes/s; each node for each write: {cpu:.1f} us of CPU, "
             f"{synced:.0f} bytes in {syncs:.3f} syncs, {sent:.0f} bytes to other nodes")
        return work


def replicas_of(ring):
    return {(arc["arc"], node) for arc in ring["arcs"] for node in arc["nodes"]}


def moves(binaries, seconds, state_mb):
    """Prints what 3 -> 7 -> 4 nodes move, and the latency of updates meanwhile."""
    with tempfile.TemporaryDirectory() as folder, Cluster(binaries, folder, 3, spare=4) as cluster:
        cluster.nodes[1].ask("POST", "/", TABLE, "CreateTable")
        for key in range(state_mb * 1_000_000 // ITEM_BYTES):
            item = {"k": {"S": f"{key}"}, "v": {"S": "x" * ITEM_BYTES}}
            cluster.nodes[1].ask("POST", "/", {"TableName": "ballast", "Item": item}, "PutItem")
        rest = result(cluster.generator("update", 10))
        show("updates at rest", f"{rest['per_second']:.0f} per second, p99 {rest['p99_ms']:.1f} ms")
        ring, sent_by_left = cluster.rest(), 0
        before = cluster.sent_state_bytes()
        load = cluster.generator("update", seconds)
        # The generator first creates and fills its tables, and does not repeat these requests.
        time.sleep(3)
        begun = time.monotonic()
        lines = []
        for number in (4, 5, 6, 7, 2, 3, 5):
            step = time.monotonic()
            previous, joins = replicas_of(ring), number not in cluster.nodes
            held = [len([arc for arc, node in previous if node == each]) for each in cluster.nodes]
            if joins:
                ring = cluster.join(number)
                least = REPLICAS * ARCS // len(cluster.nodes)
            else:
                least = held[list(cluster.nodes).index(number)]
                ring, sent = cluster.leave(number)
                sent_by_left += sent
            moved = len(replicas_of(ring) - previous)
            what = "joins" if joins else "leaves"
            lines.append((f"node {number} {what}", moved, least, time.monotonic() - step))
        moving = time.monotonic() - begun
        sent = cluster.sent_state_bytes() - before + sent_by_left
        under_load = result(load)
        for what, moved, least, took in lines:
            show(what, f"{moved} replicas moved, at least {least} must; {took:.1f} s")
        moved, least = sum(line[1] for line in lines), sum(line[2] for line in lines)
        show("states sent", f"{sent / 1e6:.0f} MB for {moved} replicas (minimum {least}), "
             f"{sent / moved / 1e6:.2f} MB each; the whole state is about {state_mb} MB in {ARCS} arcs")
        show("updates meanwhile", f"{under_load['per_second']:.0f} per second, p99 {under_load['p99_ms']:.1f} ms "
             f"({under_load['p99_ms'] / rest['p99_ms']:.1f} times), {under_load['errors']} failed; "
             f"moves took {moving:.0f} s of {seconds} s")
        show("", under_load["notes"].strip().replace("\n", "; "))


def show(what, figure):
    print(f"{what:20} {figure}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", type=pathlib.Path, default=pathlib.Path("target/release"))
    parser.add_argument("--nodes", default="3,5,9", help="sizes of the stores (default: 3,5,9; empty for none)")
    parser.add_argument("--seconds", type=int, default=10, help="duration of each measured load (default: 10)")
    parser.add_argument("--rate", type=float, default=600, help="writes per second of that load (default: 600)")
    parser.add_argument("--moves", type=int, default=40, help="seconds of load during joins and leaves (default: 40)")
    parser.add_argument("--state-mb", type=int, default=100, help="data that moves, in MB (default: 100)")
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve(strict=True)
    sizes = [int(size) for size in arguments.nodes.split(",") if size]
    costs = {size: cost(binaries, size, arguments.seconds, arguments.rate) for size in sizes}
    for size in sizes[1:]:
        expected = sizes[0] / size
        ratios = [own / first / expected for own, first in zip(costs[size], costs[sizes[0]])]
        names = ("CPU", "synced bytes", "syncs", "bytes to other nodes")
        show(f"{size} beside {sizes[0]}", ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(names, ratios))
             + f" times {sizes[0]}/{size}")
    if arguments.moves:
        moves(binaries, arguments.moves, arguments.state_mb)


if __name__ == "__main__":
    main()
