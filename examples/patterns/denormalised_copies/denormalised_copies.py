"""Denormalised copies: articles contain the name of their author, and follow when it changes."""

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

resource = boto3.resource("dynamodb")
authors, articles = resource.Table("authors"), resource.Table("articles")
Stale = articles.meta.client.exceptions.ConditionalCheckFailedException

# What the copies are for: one GetItem shows an article with the name of its author.
answer = articles.get_item(Key={"article": "x-1"}, ReturnConsumedCapacity="TOTAL")
assert answer["Item"]["pen_name"] == "Ana L."
assert answer["ConsumedCapacity"]["CapacityUnits"] == 0.5


def rename(author, pen_name):
    """Changes the origin. Returns its new image, which has the next edition."""
    return authors.update_item(
        Key={"author": author},
        UpdateExpression="SET pen_name = :name ADD edition :one",
        ExpressionAttributeValues={":name": pen_name, ":one": 1},
        ReturnValues="ALL_NEW",
    )["Attributes"]


def update_copies(origin):
    """Brings the copies to this image of the origin. Returns how many changed, and the units."""
    page = articles.query(
        IndexName="by-author",
        KeyConditionExpression="author = :author",
        ExpressionAttributeValues={":author": origin["author"]},
        ReturnConsumedCapacity="TOTAL",
    )
    changed, units = 0, page["ConsumedCapacity"]["CapacityUnits"]
    for article in page["Items"]:
        try:
            answer = articles.update_item(
                Key={"article": article["article"]},
                UpdateExpression="SET pen_name = :name, pen_name_edition = :edition",
                ConditionExpression="pen_name_edition < :edition",
                ExpressionAttributeValues={
                    ":name": origin["pen_name"],
                    ":edition": origin["edition"],
                },
                ReturnConsumedCapacity="TOTAL",
            )
        except Stale:
            continue  # a newer name is there already
        changed, units = changed + 1, units + answer["ConsumedCapacity"]["CapacityUnits"]
    return changed, units


# Two renames. The second one reaches the copies first, as can happen with retries.
first, second = rename("a-1", "Ana Lima"), rename("a-1", "Ana Lima-Roth")
assert update_copies(second) == (2, 2.5)  # one write unit for each copy: the index has no name
assert update_copies(first) == (0, 0.5)

names = {item["article"]: item["pen_name"] for item in articles.scan(ConsistentRead=True)["Items"]}
assert names == {"x-1": "Ana Lima-Roth", "x-2": "Ana Lima-Roth", "x-3": "Ben O."}

print("denormalised copies: a read costs 0.5 units; a rename costs one write unit for each copy")
