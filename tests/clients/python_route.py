"""Tries examples/migrations/route.py against the store: each case of route_cases.json, and a switch."""

import json
import sys
import threading
import time
import uuid
from pathlib import Path

import boto3

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples" / "migrations"))
from route import Route, insert, visible  # noqa: E402

CASES = json.loads((HERE / "route_cases.json").read_text())
KEYS = CASES["keys"]
dynamodb = boto3.client("dynamodb")
control, table = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ["control", "parts"])


def create(name, partition, sort):
    names = [(partition, "HASH"), (sort, "RANGE")]
    dynamodb.create_table(
        TableName=name, BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in names],
        KeySchema=[{"AttributeName": n, "KeyType": kind} for n, kind in names],
    )


def set_route(entry):
    key = {"migration": {"S": "move"}, "entry": {"S": "ROUTE"}}
    dynamodb.put_item(TableName=control, Item={**key, **entry})


create(control, "migration", "entry")
create(table, *KEYS)
count = 0
for case in CASES["inserts"]:
    count += 1
    key = {KEYS[0]: {"S": f"case-{count}"}, KEYS[1]: {"S": "a"}}
    if "there" in case:
        dynamodb.put_item(TableName=table, Item={**key, **case["there"]})
    item = {**key, **case["item"]}
    try:
        dynamodb.put_item(**insert(table, item, KEYS))
        inserted = True
    except dynamodb.exceptions.ConditionalCheckFailedException:
        inserted = False
    assert inserted == case["inserted"], case
    there = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    assert there == (item if inserted else {**key, **case["there"]}), (case, there)
for case in CASES["visible"]:
    count += 1
    key = {KEYS[0]: {"S": "p"}, KEYS[1]: {"S": "s"}}
    seen = visible({**key, **case["item"]}, KEYS)
    assert seen == ({**key, **case["seen"]} if "seen" in case else None), (case, seen)
for case in CASES["routes"]:
    count += 1
    if "entry" in case:
        set_route(case["entry"])
    route = Route(dynamodb, "move", control=control)
    assert (route.read(), route.write()) == (case["read"], case["write"]), case

# A route is kept for a while, and writers wait for the end of a switch.
set_route({"read": {"S": "source"}, "write": {"S": "source"}})
route = Route(dynamodb, "move", control=control, seconds=0.5)
assert route.write() == "source"
set_route({"read": {"S": "source"}, "write": {"S": "none"}})
assert route.write() == "source", "it is asked for again later"
time.sleep(0.6)
opened = threading.Timer(1.0, set_route, [{"read": {"S": "target"}, "write": {"S": "target"}}])
began = time.monotonic()
opened.start()
assert route.write() == "target" and route.read() == "target"
assert time.monotonic() - began > 0.9, "it waited for the switch"
print(f"route.py: {count} cases and a switch")
