"""Versioned items: the latest version is cheap to read, and every earlier one stays as a record."""

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

contracts = boto3.resource("dynamodb").Table("contracts")
client = contracts.meta.client


def save(contract, seen, fee, author):
    """Adds a version after the one that was seen. Returns the write units."""
    answer = client.transact_write_items(
        TransactItems=[
            {
                "Update": {
                    "TableName": "contracts",
                    "Key": {"contract": contract, "version_id": "v0000"},
                    "UpdateExpression": "SET latest = :next, fee = :fee",
                    "ConditionExpression": "latest = :seen",
                    "ExpressionAttributeValues": {":seen": seen, ":next": seen + 1, ":fee": fee},
                }
            },
            {
                "Put": {
                    "TableName": "contracts",
                    "Item": {
                        "contract": contract,
                        "version_id": f"v{seen + 1:04}",
                        "fee": fee,
                        "author": author,
                    },
                    "ConditionExpression": "attribute_not_exists(contract)",
                }
            },
        ],
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"][0]["CapacityUnits"]


# The latest version and its record, in one transaction.
assert save("k-1", seen=2, fee=140, author="eva") == 4

# A writer who saw version 2 is too late, and neither of the two items changes.
try:
    save("k-1", seen=2, fee=90, author="kim")
    raise SystemExit("a version was overwritten")
except client.exceptions.TransactionCanceledException:
    pass

# The latest version has a fixed key.
answer = contracts.get_item(
    Key={"contract": "k-1", "version_id": "v0000"}, ReturnConsumedCapacity="TOTAL"
)
assert (answer["Item"]["latest"], answer["Item"]["fee"]) == (3, 140)
assert answer["ConsumedCapacity"]["CapacityUnits"] == 0.5

# The audit trail: who changed the fee to what.
page = contracts.query(
    KeyConditionExpression="contract = :contract AND version_id > :latest",
    ExpressionAttributeValues={":contract": "k-1", ":latest": "v0000"},
    ReturnConsumedCapacity="TOTAL",
)
trail = [(int(item["fee"]), item["author"]) for item in page["Items"]]
assert trail == [(100, "ana"), (120, "ben"), (140, "eva")]
assert page["ConsumedCapacity"]["CapacityUnits"] == 0.5

print("versioned items: 4 write units for a version, 0.5 read units for the latest or the trail")
