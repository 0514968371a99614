"""An overloaded index: one index whose key means something else for each kind of item."""

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

shop = boto3.resource("dynamodb").Table("shop")


def lookup(key):
    """Returns the items with this key in the index, and the read units of the Query."""
    page = shop.query(
        IndexName="lookup",
        KeyConditionExpression="lookup_pk = :key",
        ExpressionAttributeValues={":key": key},
        ReturnConsumedCapacity="TOTAL",
    )
    return page["Items"], page["ConsumedCapacity"]["CapacityUnits"]


# The prefix of the key distinguishes the lookups. Three access patterns share one index.
customers, units = lookup("EMAIL#ana@example.com")
assert [item["pk"] for item in customers] == ["CUSTOMER#c-1"]
assert units == 0.5

open_orders, units = lookup("OPEN#depot-7")
assert [item["sk"] for item in open_orders] == ["ORDER#o-100", "ORDER#o-117"]
assert units == 0.5

teas, units = lookup("CATEGORY#tea")
assert [item["lookup_sk"] for item in teas] == ["Assam", "Darjeeling"]
assert units == 0.5

# A new value of the index key moves the entry: the index deletes the old one and puts the new one.
moved = shop.update_item(
    Key={"pk": "PRODUCT#p-2", "sk": "PRODUCT"},
    UpdateExpression="SET lookup_pk = :category",
    ExpressionAttributeValues={":category": "CATEGORY#gifts"},
    ReturnConsumedCapacity="INDEXES",
)["ConsumedCapacity"]
assert moved["Table"]["CapacityUnits"] == 1
assert moved["GlobalSecondaryIndexes"]["lookup"]["CapacityUnits"] == 2
assert [item["pk"] for item in lookup("CATEGORY#tea")[0]] == ["PRODUCT#p-1"]

# A shipped order no longer needs an entry.
shipped = shop.update_item(
    Key={"pk": "CUSTOMER#c-1", "sk": "ORDER#o-100"},
    UpdateExpression="REMOVE lookup_pk, lookup_sk",
    ReturnConsumedCapacity="INDEXES",
)["ConsumedCapacity"]
assert shipped["GlobalSecondaryIndexes"]["lookup"]["CapacityUnits"] == 1
assert [item["sk"] for item in lookup("OPEN#depot-7")[0]] == ["ORDER#o-117"]

print("overloaded index: three access patterns, 0.5 read units each; to move an entry costs 3")
