"""Atomic counters: count with ADD, take numbers, and write an item with its number."""

import atexit
import json
import pathlib
from concurrent.futures import ThreadPoolExecutor

import boto3

model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
dynamodb = boto3.client("dynamodb")
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])
dynamodb.batch_write_item(RequestItems=model["items"])

resource = boto3.resource("dynamodb")
tallies, invoices = resource.Table("tallies"), resource.Table("invoices")
client = resource.meta.client


def next_number():
    """Returns the next invoice number. No two callers get the same one."""
    answer = tallies.update_item(
        Key={"tally": "invoices"},
        UpdateExpression="ADD last_number :one",
        ExpressionAttributeValues={":one": 1},
        ReturnValues="UPDATED_NEW",
        ReturnConsumedCapacity="TOTAL",
    )
    assert answer["ConsumedCapacity"]["CapacityUnits"] == 1
    return answer["Attributes"]["last_number"]


def write_next_invoice(cents):
    """Writes an invoice whose number follows the last one without a gap; returns the number."""
    tally = tallies.get_item(Key={"tally": "invoices"}, ConsistentRead=True)["Item"]
    seen = tally["last_number"]
    answer = client.transact_write_items(
        TransactItems=[
            {
                "Update": {
                    "TableName": "tallies",
                    "Key": {"tally": "invoices"},
                    "UpdateExpression": "SET last_number = :next",
                    "ConditionExpression": "last_number = :seen",
                    "ExpressionAttributeValues": {":seen": seen, ":next": seen + 1},
                }
            },
            {
                "Put": {
                    "TableName": "invoices",
                    "Item": {"invoice": f"inv-{seen + 1}", "cents": cents},
                    "ConditionExpression": "attribute_not_exists(invoice)",
                }
            },
        ],
        ReturnConsumedCapacity="TOTAL",
    )
    assert sum(table["CapacityUnits"] for table in answer["ConsumedCapacity"]) == 4
    return seen + 1


# Twenty concurrent clients: each takes a different number, and none has to retry.
with ThreadPoolExecutor(4) as threads:
    numbers = list(threads.map(lambda _: next_number(), range(20)))
assert sorted(numbers) == list(range(1001, 1021))

# A client that stops between the number and its invoice leaves a gap. A transaction does not.
number = write_next_invoice(4200)
assert number == 1021
assert invoices.get_item(Key={"invoice": "inv-1021"}, ConsistentRead=True)["Item"]["cents"] == 4200

print("atomic counter: 20 numbers for 20 write units; an invoice without a gap for 4")
