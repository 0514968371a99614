"""Write sharding: several partition keys share the writes of one, and a read adds them up."""

import atexit
import json
import pathlib
import random
import zlib

import boto3

model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
dynamodb = boto3.client("dynamodb")
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])
dynamodb.batch_write_item(RequestItems=model["items"])

resource = boto3.resource("dynamodb")
likes, orders = resource.Table("likes"), resource.Table("orders-by-day")
SHARDS = 4


def like(post):
    """Counts a like in a random shard: right for what is only read as a sum."""
    answer = likes.update_item(
        Key={"post_shard": f"{post}#{random.randrange(SHARDS)}"},
        UpdateExpression="ADD likes :one",
        ExpressionAttributeValues={":one": 1},
        ReturnConsumedCapacity="TOTAL",
    )
    assert answer["ConsumedCapacity"]["CapacityUnits"] == 1


def total(post):
    """Adds up all shards. Returns the sum and the read units."""
    keys = [{"post_shard": f"{post}#{shard}"} for shard in range(SHARDS)]
    answer = likes.meta.client.batch_get_item(
        RequestItems={"likes": {"Keys": keys}}, ReturnConsumedCapacity="TOTAL"
    )
    found = answer["Responses"]["likes"]
    return sum(item["likes"] for item in found), answer["ConsumedCapacity"][0]["CapacityUnits"]


def shard_of(day, order_id):
    """Returns the shard of an order: a hash, so a reader computes it too."""
    return f"{day}#{zlib.crc32(order_id.encode()) % SHARDS}"


# A random shard. A read costs as many items as there are shards.
assert total("post-1") == (46, 2.0)
for _ in range(40):
    like("post-1")
assert total("post-1") == (86, 2.0)

# The shard by hash: one order is still one GetItem.
day = "2026-03-01"
answer = orders.get_item(
    Key={"day_shard": shard_of(day, "o-15"), "order_id": "o-15"}, ReturnConsumedCapacity="TOTAL"
)
assert answer["Item"]["cents"] == 2500
assert answer["ConsumedCapacity"]["CapacityUnits"] == 0.5

# All orders of the day are one Query for each shard, merged by the reader.
pages = [
    orders.query(
        KeyConditionExpression="day_shard = :shard",
        ExpressionAttributeValues={":shard": f"{day}#{shard}"},
        ReturnConsumedCapacity="TOTAL",
    )
    for shard in range(SHARDS)
]
merged = sorted(item["order_id"] for page in pages for item in page["Items"])
assert merged == ["o-11", "o-12", "o-14", "o-15"]
assert sum(page["ConsumedCapacity"]["CapacityUnits"] for page in pages) == 2.0

print("write sharding: 4 shards take 4 times the writes; a sum costs 2 read units, not 0.5")
