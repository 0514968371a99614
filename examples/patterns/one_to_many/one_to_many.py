"""One to many: a customer and its orders share a partition key, so one Query reads both."""

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

customers = boto3.resource("dynamodb").Table("customers")


def query(condition, values, **options):
    """Returns the sort keys of a Query, and its read units."""
    page = customers.query(
        KeyConditionExpression=condition,
        ExpressionAttributeValues=values,
        ReturnConsumedCapacity="TOTAL",
        **options,
    )
    return [item["entry"] for item in page["Items"]], page["ConsumedCapacity"]["CapacityUnits"]


# The profile and all orders: what a relational database reads with a join.
everything, units = query("customer = :customer", {":customer": "c-1"})
assert everything[-1] == "PROFILE" and len(everything) == 4
assert units == 0.5

# The newest orders first. The date in the sort key makes the order of the keys the order in time.
orders = "customer = :customer AND begins_with(entry, :orders)"
newest, units = query(
    orders, {":customer": "c-1", ":orders": "ORDER#"}, ScanIndexForward=False, Limit=2
)
assert newest == ["ORDER#2026-03-02#o-131", "ORDER#2026-02-14#o-117"]
assert units == 0.5

# The orders of a month.
february, units = query(orders, {":customer": "c-1", ":orders": "ORDER#2026-02"})
assert february == ["ORDER#2026-02-14#o-117"]

# The same four items by their keys: each item is rounded up to 4 KB separately.
keys = [{"customer": "c-1", "entry": entry} for entry in everything]
answer = customers.meta.client.batch_get_item(
    RequestItems={"customers": {"Keys": keys}}, ReturnConsumedCapacity="TOTAL"
)
assert answer["ConsumedCapacity"][0]["CapacityUnits"] == 2.0

print("one to many: four items cost 0.5 read units with one Query, and 2 with BatchGetItem")
