"""Multi-tenancy: the tenant is the partition key, which isolates tenants and finds their items."""

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

workspace = boto3.resource("dynamodb").Table("workspace")
with workspace.batch_writer() as batch:
    for number in range(97):  # with the items of the model, acme has 100
        batch.put_item(Item={"tenant": "acme", "entry": f"NOTE#{number:04}", "body": "x" * 60})


def remove(tenant):
    """Deletes every item of a tenant, and returns their number and the consumed units."""
    removed, units = 0, 0
    while True:
        page = workspace.query(
            KeyConditionExpression="tenant = :tenant",
            ExpressionAttributeValues={":tenant": tenant},
            ProjectionExpression="tenant, entry",
            ConsistentRead=True,
            Limit=25,  # the maximum of one BatchWriteItem
            ReturnConsumedCapacity="TOTAL",
        )
        units += page["ConsumedCapacity"]["CapacityUnits"]
        if not page["Items"]:
            return removed, units
        # The next Query finds the items that a batch left unprocessed.
        answer = workspace.meta.client.batch_write_item(
            RequestItems={"workspace": [{"DeleteRequest": {"Key": key}} for key in page["Items"]]},
            ReturnConsumedCapacity="TOTAL",
        )
        unprocessed = answer["UnprocessedItems"].get("workspace", [])
        removed += len(page["Items"]) - len(unprocessed)
        units += answer["ConsumedCapacity"][0]["CapacityUnits"]


# A Query names one tenant, so it cannot return items of another tenant.
page = workspace.query(
    KeyConditionExpression="tenant = :tenant AND begins_with(entry, :users)",
    ExpressionAttributeValues={":tenant": "acme", ":users": "USER#"},
    ReturnConsumedCapacity="TOTAL",
)
assert [item["email"] for item in page["Items"]] == ["ana@acme.example", "ben@acme.example"]
assert page["ConsumedCapacity"]["CapacityUnits"] == 0.5

# Four pages with items and one without, of one read unit each, and one write unit for each item.
assert remove("acme") == (100, 105)

# The other tenant is unchanged.
left = workspace.scan(ConsistentRead=True)["Items"]
assert sorted(item["entry"] for item in left) == ["TENANT", "USER#ana"]
assert {item["tenant"] for item in left} == {"globex"}

print("multi-tenancy: a tenant of 100 items is removed for 5 read units and 100 write units")
