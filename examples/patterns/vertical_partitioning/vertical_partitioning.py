"""Vertical partitioning: a small part that changes often, and a large part that does not."""

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

products = boto3.resource("dynamodb").Table("products")
MANUAL = "x" * 20_000
# One product in a single item, and one in two parts.
products.put_item(
    Item={"product": "p-8", "part": "WHOLE", "title": "Grill", "stock": 9, "pages": MANUAL}
)
products.put_item(Item={"product": "p-9", "part": "CORE", "title": "Grill", "stock": 9})
products.put_item(Item={"product": "p-9", "part": "MANUAL", "pages": MANUAL})


def sell(product, part):
    """Takes one from the stock. Returns the write units."""
    answer = products.update_item(
        Key={"product": product, "part": part},
        UpdateExpression="ADD stock :less",
        ConditionExpression="stock > :zero",
        ExpressionAttributeValues={":less": -1, ":zero": 0},
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"]["CapacityUnits"]


def read(product, part, **options):
    """Returns the read units of a GetItem."""
    key = {"product": product, "part": part}
    answer = products.get_item(Key=key, ReturnConsumedCapacity="TOTAL", **options)
    assert answer["Item"]["title"] == "Grill"
    return answer["ConsumedCapacity"]["CapacityUnits"]


# An update pays for the complete item, however small its change is.
assert sell("p-8", "WHOLE") == 20
assert sell("p-9", "CORE") == 1

# So does a read. A projection shortens the answer, not the bill.
assert read("p-8", "WHOLE") == 2.5
assert read("p-8", "WHOLE", ProjectionExpression="title") == 2.5
assert read("p-9", "CORE") == 0.5

# Both parts share a partition key, so one Query reads the complete product.
page = products.query(
    KeyConditionExpression="product = :product",
    ExpressionAttributeValues={":product": "p-9"},
    ReturnConsumedCapacity="TOTAL",
)
assert [item["part"] for item in page["Items"]] == ["CORE", "MANUAL"]
assert page["ConsumedCapacity"]["CapacityUnits"] == 2.5

print("vertical partitioning: a sale costs 1 write unit, not 20; a list entry 0.5, not 2.5")
