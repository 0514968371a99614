"""Tries examples/migrations/route.py against the store: each case of route_cases.json, and a switch. Reads of the
route that fail or are slow come from a mock client."""

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
KEYS, ALWAYS = CASES["keys"], CASES["always"]
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
        dynamodb.put_item(**insert(table, item, KEYS, ALWAYS))
        inserted = True
    except dynamodb.exceptions.ConditionalCheckFailedException:
        inserted = False
    assert inserted == case["inserted"], case
    there = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    assert there == (item if inserted else {**key, **case["there"]}), (case, there)
for case, always in [*((case, ALWAYS) for case in CASES["refused"]), ({"item": {}}, KEYS[0])]:
    count += 1
    try:
        insert(table, {KEYS[0]: {"S": "p"}, KEYS[1]: {"S": "s"}, **case["item"]}, KEYS, always)
    except ValueError as error:
        assert f"`{always}` must be" in str(error), error
    else:
        raise AssertionError(case)
# The keys of another table would make an insert that overwrites.
count += 1
try:
    insert("orders", {"orderID": {"S": "1"}, ALWAYS: {"N": "1"}}, KEYS, ALWAYS)
except ValueError as error:
    assert f"`{KEYS[0]}` must be" in str(error) and "of `orders`" in str(error), error
else:
    raise AssertionError("an item without the key")
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


class Answers:
    """Answers each read of a route with the next (seconds, side), and from then on with the last; None fails."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def get_item(self, **_):
        seconds, side = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        time.sleep(seconds)
        if side is None:
            raise ConnectionError("no answer")
        return {"Item": {"read": {"S": side}, "write": {"S": side}}}


# After a read that fails, the old route is not used again.
route = Route(Answers((0, "source"), (0, None), (0, None), (0, "target")), "move", seconds=0.2)
assert route.write() == "source"
time.sleep(0.3)
for _ in range(2):
    try:
        raise AssertionError(route.write())
    except ConnectionError:
        pass
assert route.write() == "target"

# While a read is slow, other threads do not use the old route; its answer is too old when it comes.
route = Route(Answers((0, "source"), (0.6, "source"), (0, "target")), "move", seconds=0.2)
assert route.write() == "source"
time.sleep(0.3)
sides = []
slow = threading.Thread(target=lambda: sides.append(route.write()))
slow.start()
time.sleep(0.1)
assert route.write() == "target"
assert not sides, "the read is still going on"
slow.join()
assert sides == ["target"] and route.write() == "target"
assert Route(None, "move").seconds == 1.0, "half of the default of gate_seconds"
print(f"route.py: {count} cases, a switch, and reads that fail or are slow")
