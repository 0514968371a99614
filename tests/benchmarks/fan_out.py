"""A large fan-out: changes one origin with many copies repeatedly while its job is in progress.

Loads COPIES order lines of one product, renames the product, kills the function while the job runs
(--kills), renames the product again in the middle, creates copies meanwhile, and waits until every
copy has the last name. Finally it scans the table: each copy must have the values of its product, and
the job must be done. Then it renames the product once more without disturbance; the time until the job
is done gives the copies per second. `docs/development/benchmarks.md` explains how to run and read it.
"""

import argparse
import http.client
import json
import pathlib
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "real_data"))

from running import WEIR, Running  # noqa: E402

# Requests per second at 16 connections (`load-generator --ceiling`, `echo`) of a machine that is otherwise idle:
# measured on two cores.
QUIET = 120_000
LOAD_GENERATOR = WEIR.with_name("load-generator")
PRODUCT = {"productID": {"N": "1"}}


def rename(weir, name):
    weir.dynamodb.update_item(
        TableName="products", Key=PRODUCT, UpdateExpression="SET productName = :name",
        ExpressionAttributeValues={":name": {"S": name}},
    )


def job(weir):
    key = {"job": {"S": "products#" + json.dumps(PRODUCT["productID"], separators=(",", ":"))}}
    return weir.dynamodb.get_item(TableName="fan-out-jobs", Key=key, ConsistentRead=True).get("Item")


def is_done_with(weir, name):
    found = job(weir)
    return found is not None and found["done"]["BOOL"] and name in json.dumps(found)


def watch_job(weir):
    """Returns a function that reads the job by repeating one signed request: boto3 takes two milliseconds
    of CPU time for each, which would not be available to the job."""
    taken = []
    take = lambda request, **_: taken.append(request)  # noqa: E731
    weir.dynamodb.meta.events.register("before-send.dynamodb.GetItem", take)
    job(weir)
    weir.dynamodb.meta.events.unregister("before-send.dynamodb.GetItem", take)
    request = taken[0]
    text = lambda value: value.decode() if isinstance(value, bytes) else value  # noqa: E731
    headers = {name: text(value) for name, value in request.headers.items()}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(request.url).netloc)

    def is_done_with(name):
        connection.request("POST", "/", request.body, headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body)["Item"]["done"]["BOOL"] and name.encode() in body

    return is_done_with


def count_of(weir, **filtered):
    """Returns the number of copies, counted by the store: a million is too much to transfer."""
    pages = weir.dynamodb.get_paginator("scan").paginate(
        TableName="order-lines", ConsistentRead=True, Select="COUNT", **filtered
    )
    return sum(page["Count"] for page in pages)


def stale(weir, name):
    """Returns the number of copies without the name, and the number of all."""
    right = count_of(
        weir, FilterExpression="productName = :name", ExpressionAttributeValues={":name": {"S": name}}
    )
    count = count_of(weir)
    return count - right, count


def load(weir, copies):
    weir.dynamodb.put_item(TableName="products", Item={**PRODUCT, "productName": {"S": "first"}})
    lines = weir.path / "lines.csv"
    with open(lines, "w", encoding="utf-8") as file:
        file.write("orderID,productID,quantity\n")
        file.writelines(f"{order},1,{order % 50 + 1}\n" for order in range(copies))
    types = "orderID:N,productID:N,quantity:N"
    weir.load("--table", "order-lines", "--format", "csv", lines, "--types", types)


def disturb(weir, copies, kills):
    """Changes and kills during a job, and creates copies; returns the number of copies afterwards."""
    killed = 0
    rename(weir, "second")
    for kill in range(kills):
        time.sleep(1.0)
        killed += weir.kill_function("fan-out")
        # Copies at places that the job may have passed.
        for new in range(10):
            order = copies + kill * 10 + new
            line = {"orderID": {"N": str(order)}, "productID": {"N": "1"}, "quantity": {"N": "1"}}
            weir.dynamodb.put_item(TableName="order-lines", Item=line)
        if kill == kills // 2:
            print(f"second change is superseded at {job(weir)['copies']['N']} copies", file=sys.stderr)
            rename(weir, "third")
    return killed, copies + kills * 10


def echoes(weir):
    """Returns the requests per second of an echo server at 16 connections: the current speed of the machine."""
    command = [LOAD_GENERATOR, "--ceiling", "--folder", weir.path]
    command += ["--connections", "16", "--duration", "1"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    names, rows = lines[0].split("\t"), [line.split("\t") for line in lines[1:]]
    found = [dict(zip(names, row)) for row in rows]
    return next(float(row["req_s"]) for row in found if row["target"] == "echo")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--copies", type=int, default=100_000)
    arguments.add_argument("--kills", type=int, default=6)
    arguments.add_argument("--seconds", type=int, default=1_800, help="time that a job may take")
    arguments = arguments.parse_args()
    with Running() as weir:
        started = time.monotonic()
        load(weir, arguments.copies)
        # Each check scans the entire table twice.
        looked_at = lambda: stale(weir, "first")[0] == 0  # noqa: E731
        weir.wait_until(looked_at, arguments.seconds, "new copies to be looked at", pause=5)
        print(f"{arguments.copies} copies loaded and checked in {time.monotonic() - started:.1f} s", file=sys.stderr)
        killed, copies = disturb(weir, arguments.copies, arguments.kills)
        weir.wait_until(lambda: is_done_with(weir, "third"), arguments.seconds, "the job to be done")
        weir.wait_until(lambda: stale(weir, "third") == (0, copies), 120, "every copy to carry the last name")
        print(f"{copies} copies are correct; {killed} processes of the function killed", file=sys.stderr)
        is_done = watch_job(weir)
        before = echoes(weir)
        started = time.monotonic()
        rename(weir, "fourth")
        # Checked often, so that the interval does not add to the time.
        weir.wait_until(lambda: is_done("fourth"), arguments.seconds, "the job to be done", pause=0.02)
        seconds = time.monotonic() - started
        after = echoes(weir)
        wrong, count = stale(weir, "fourth")
        assert (wrong, count) == (0, copies), (wrong, count)
        print(f"{count} copies in {seconds:.1f} s: {count / seconds:.0f} copies/s; {killed} kills before, zero stale copies")
        print(f"the machine answered {before:.0f} requests/s before and {after:.0f} after; it is quiet from {QUIET} on")


if __name__ == "__main__":
    main()
