"""boto3's resource: Python values, condition builders, the batch writer, collections."""

from decimal import Decimal

import boto3
from boto3.dynamodb.conditions import Attr, Key

dynamodb = boto3.resource("dynamodb")
table = dynamodb.create_table(
    TableName="films",
    BillingMode="PAY_PER_REQUEST",
    AttributeDefinitions=[
        {"AttributeName": "year", "AttributeType": "N"},
        {"AttributeName": "title", "AttributeType": "S"},
        {"AttributeName": "studio", "AttributeType": "S"},
    ],
    KeySchema=[{"AttributeName": "year", "KeyType": "HASH"}, {"AttributeName": "title", "KeyType": "RANGE"}],
    LocalSecondaryIndexes=[
        {
            "IndexName": "by-studio",
            "KeySchema": [{"AttributeName": "year", "KeyType": "HASH"}, {"AttributeName": "studio", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
)
assert table.table_status == "CREATING"
table.wait_until_exists()
table.reload()
assert table.table_status == "ACTIVE" and table.item_count == 0

whole = {
    "year": 2026, "title": "Weir", "studio": "river", "rating": Decimal("7.25"),
    "exact": Decimal("12345678901234567890123456789012345678"), "tags": {"flow", "dam"}, "counts": {1, 2, 3},
    "bytes": b"\x00\xff", "nothing": None, "yes": True, "list": [1, "two", [3]], "map": {"deep": {"er": "é"}},
    "empty": "",
}
table.put_item(Item=whole)
assert table.get_item(Key={"year": 2026, "title": "Weir"}, ConsistentRead=True)["Item"] == whole

with table.batch_writer(overwrite_by_pkeys=["year", "title"]) as batch:
    for number in range(120):
        batch.put_item(Item={"year": 1990 + number % 3, "title": f"film {number:03}", "studio": "ab"[number % 2],
                             "rating": Decimal(number) / 10, "cast": [{"name": f"actor {number}"}]})
    batch.delete_item(Key={"year": 1990, "title": "film 000"})
    batch.delete_item(Key={"year": 1991, "title": "film 001"})

found = table.query(
    KeyConditionExpression=Key("year").eq(1990) & Key("title").begins_with("film 0"),
    FilterExpression=(Attr("rating").gt(3) | Attr("studio").eq("b")) & ~Attr("cast[0].name").contains("9"),
    ProjectionExpression="title, rating",
)
expected = [number for number in range(3, 100, 3) if (number > 30 or number % 2) and "9" not in str(number)]
assert [int(item["title"][5:]) for item in found["Items"]] == expected, found
assert all(set(item) == {"title", "rating"} for item in found["Items"])
fetched = table.query(IndexName="by-studio", Select="ALL_ATTRIBUTES", ScanIndexForward=False,
                      KeyConditionExpression=Key("year").eq(1991) & Key("studio").eq("a"))
assert fetched["Count"] == 20 and all("rating" in item for item in fetched["Items"])

updated = table.update_item(
    Key={"year": 2026, "title": "Weir"},
    UpdateExpression="SET #m.deep.er = :d, #l = list_append(#l, :more), seen = if_not_exists(seen, :zero) + :one "
                     "REMOVE nothing ADD counts :four DELETE tags :dam",
    ConditionExpression=Attr("rating").between(7, 8) & Attr("tags").contains("dam") & Attr("list").size().eq(3),
    ExpressionAttributeNames={"#m": "map", "#l": "list"},
    ExpressionAttributeValues={":d": "changed", ":more": [4], ":zero": 0, ":one": 1, ":four": {4}, ":dam": {"dam"}},
    ReturnValues="ALL_NEW",
)["Attributes"]
whole.pop("nothing")
whole.update({"map": {"deep": {"er": "changed"}}, "list": [1, "two", [3], 4], "seen": 1, "counts": {1, 2, 3, 4}, "tags": {"flow"}})
assert updated == whole, updated
try:
    table.delete_item(Key={"year": 2026, "title": "Weir"}, ConditionExpression=Attr("seen").ne(1))
    raise AssertionError("the condition does not hold")
except dynamodb.meta.client.exceptions.ConditionalCheckFailedException:
    pass
keys = [{"year": 1990 + number % 3, "title": f"film {number:03}"} for number in range(80)]
got = dynamodb.batch_get_item(RequestItems={"films": {"Keys": keys}})
assert len(got["Responses"]["films"]) == 78 and got["UnprocessedKeys"] == {}
assert "films" in [each.name for each in dynamodb.tables.all()]
table.load()
assert table.item_count == 119
table.delete()
table.wait_until_not_exists()
print("boto3 resource: values, conditions, updates, batches and indexes agree")
