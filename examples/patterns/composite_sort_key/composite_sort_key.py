"""A composite sort key: one Query reads any level of a hierarchy, and nothing else."""

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

stores = boto3.resource("dynamodb").Table("stores")
with stores.batch_writer() as batch:  # 400 more stores, of 112 bytes each
    for number in range(400):
        place = f"NW#Cologne#store-{number:03}"
        batch.put_item(Item={"country": "DE", "place": place, "opens": "09:00", "note": "x" * 64})


def below(prefix):
    """Returns the stores below a node of the hierarchy, and the read units of their Query."""
    page = stores.query(
        KeyConditionExpression="country = :country AND begins_with(place, :prefix)",
        ExpressionAttributeValues={":country": "DE", ":prefix": prefix},
        ReturnConsumedCapacity="TOTAL",
    )
    return [item["place"] for item in page["Items"]], page["ConsumedCapacity"]["CapacityUnits"]


# A level costs what it contains, however large the rest of the country is.
stuttgart, units = below("BW#Stuttgart#")
assert stuttgart == ["BW#Stuttgart#store-17", "BW#Stuttgart#store-31"]
assert units == 0.5
state, units = below("BW#")
assert state == [*stuttgart, "BW#Ulm#store-04"]
assert units == 0.5
cologne, units = below("NW#Cologne#")
assert len(cologne) == 400
assert units == 5.5  # 400 times 112 bytes are 44 KB: eleven units, halved by eventual consistency

# The delimiter ends a level. Without it, the prefix of one city matches another city too.
stores.put_item(Item={"country": "DE", "place": "BW#Ulmen#store-88"})
assert below("BW#Ulm")[0] == ["BW#Ulm#store-04", "BW#Ulmen#store-88"]
assert below("BW#Ulm#")[0] == ["BW#Ulm#store-04"]

print(f"composite sort key: a city of 2 stores costs 0.5 read units, a city of 400 costs {units}")
