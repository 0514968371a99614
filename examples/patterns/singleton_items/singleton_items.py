"""Singletons and reference data: one item of settings, and lists that one Query reads."""

import atexit
import json
import pathlib
import random

import boto3

model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
dynamodb = boto3.client("dynamodb")
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])
dynamodb.batch_write_item(RequestItems=model["items"])

reference = boto3.resource("dynamodb").Table("reference")
SETTINGS = {"kind": "SETTINGS", "code": "SETTINGS"}
COPIES = 4


def change(seen, **changes):
    """Changes the settings, unless another process changed them since. Returns the write units."""
    names = {f"#{name}": name for name in changes}
    values = {f":{name}": value for name, value in changes.items()}
    answer = reference.update_item(
        Key=SETTINGS,
        UpdateExpression="SET revision = :next, "
        + ", ".join(f"#{name} = :{name}" for name in changes),
        ConditionExpression="revision = :seen",
        ExpressionAttributeNames=names,
        ExpressionAttributeValues={":seen": seen, ":next": seen + 1, **values},
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"]["CapacityUnits"]


# A singleton has a constant key: every process finds it without a lookup.
answer = reference.get_item(Key=SETTINGS, ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
settings = answer["Item"]
assert settings["maintenance"] is False
assert answer["ConsumedCapacity"]["CapacityUnits"] == 1
assert change(settings["revision"], maintenance=True, banner="Back at noon") == 1

# A reference list is a partition: a process reads it once, and keeps it.
page = reference.query(
    KeyConditionExpression="kind = :kind",
    ExpressionAttributeValues={":kind": "CURRENCY"},
    ReturnConsumedCapacity="TOTAL",
)
digits = {item["code"]: int(item["digits"]) for item in page["Items"]}
assert digits == {"CHF": 2, "EUR": 2, "JPY": 0}
assert page["ConsumedCapacity"]["CapacityUnits"] == 0.5

# Readers that cannot keep it would exceed 3,000 read units of one partition. Copies of the item
# under several keys share the reads; a change then writes each of them.
latest = reference.get_item(Key=SETTINGS, ConsistentRead=True)["Item"]
copies = [{**latest, "kind": f"SETTINGS#{number}"} for number in range(COPIES)]
written = reference.meta.client.batch_write_item(
    RequestItems={"reference": [{"PutRequest": {"Item": copy}} for copy in copies]},
    ReturnConsumedCapacity="TOTAL",
)
assert written["ConsumedCapacity"][0]["CapacityUnits"] == COPIES
any_copy = {"kind": f"SETTINGS#{random.randrange(COPIES)}", "code": "SETTINGS"}
assert reference.get_item(Key=any_copy, ConsistentRead=True)["Item"]["banner"] == "Back at noon"

print("singleton items: settings and a list for 0.5 read units each; 4 copies cost 4 write units")
