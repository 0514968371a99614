"""A sparse index: it has only the items with its key attribute, here the few open orders."""

import atexit
import json
import pathlib

import boto3

model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
dynamodb = boto3.client("dynamodb")
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])
dynamodb.batch_write_item(RequestItems=model["items"])

orders = boto3.resource("dynamodb").Table("orders")
with orders.batch_writer() as batch:
    for number in range(600):  # closed orders: without `open_at` they are not in the index
        batch.put_item(Item={"order_id": f"closed-{number}", "placed": "2026-02-01T12:00"})

depot = {":depot": "depot-7"}
page = orders.query(
    IndexName="open-orders",
    KeyConditionExpression="open_at = :depot",
    ExpressionAttributeValues=depot,
    ReturnConsumedCapacity="TOTAL",
)
assert [item["order_id"] for item in page["Items"]] == ["o-2", "o-4"]
assert page["ConsumedCapacity"]["CapacityUnits"] == 0.5

# A Scan with a filter finds the same items, and pays for every order that was ever placed.
scan = orders.scan(
    FilterExpression="open_at = :depot",
    ExpressionAttributeValues=depot,
    ReturnConsumedCapacity="TOTAL",
)
assert scan["ScannedCount"] == 605 and scan["Count"] == 2
assert scan["ConsumedCapacity"]["CapacityUnits"] == 3.0

# Removing the attribute removes the item from the index: one write to the table, one to the index.
written = orders.update_item(
    Key={"order_id": "o-2"},
    UpdateExpression="REMOVE open_at SET shipped = :now",
    ConditionExpression="attribute_exists(open_at)",
    ExpressionAttributeValues={":now": "2026-03-04T09:00"},
    ReturnConsumedCapacity="INDEXES",
)["ConsumedCapacity"]
assert written["Table"]["CapacityUnits"] == 1
assert written["GlobalSecondaryIndexes"]["open-orders"]["CapacityUnits"] == 1

# From now on, a change of the order costs nothing in the index.
written = orders.update_item(
    Key={"order_id": "o-2"},
    UpdateExpression="SET cents = :cents",
    ExpressionAttributeValues={":cents": 650},
    ReturnConsumedCapacity="INDEXES",
)["ConsumedCapacity"]
assert written["CapacityUnits"] == 1
assert "GlobalSecondaryIndexes" not in written

print("sparse index: 2 open orders among 605 cost 0.5 read units, and 3 with a Scan")
