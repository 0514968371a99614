"""Top N: one Query of an index that is sorted by the score returns the best few."""

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

scores = boto3.resource("dynamodb").Table("scores")
with scores.batch_writer() as batch:
    for number in range(500):
        batch.put_item(Item={"player": f"p-{number:03}", "game": "chess", "points": number})


def ranking(condition, values, **options):
    return scores.query(
        IndexName="ranking",
        KeyConditionExpression=condition,
        ExpressionAttributeValues={":game": "chess", **values},
        ReturnConsumedCapacity="TOTAL",
        **options,
    )


def best(count):
    """Returns the best players, the first one first, and the read units."""
    page = ranking("game = :game", {}, ScanIndexForward=False, Limit=count)
    return [item["player"] for item in page["Items"]], page["ConsumedCapacity"]["CapacityUnits"]


def first(player, points):
    """Stores the first score of a player. Returns what the table and the index consumed."""
    units = scores.put_item(
        Item={"player": player, "game": "chess", "points": points},
        ConditionExpression="attribute_not_exists(player)",
        ReturnConsumedCapacity="INDEXES",
    )["ConsumedCapacity"]
    index = units["GlobalSecondaryIndexes"]["ranking"]
    return units["Table"]["CapacityUnits"], index["CapacityUnits"]


def improve(player, points):
    """Raises a score, and never lowers it. Returns what the table and the index consumed."""
    units = scores.update_item(
        Key={"player": player, "game": "chess"},
        UpdateExpression="SET points = :points",
        ConditionExpression="points < :points",
        ExpressionAttributeValues={":points": points},
        ReturnConsumedCapacity="INDEXES",
    )["ConsumedCapacity"]
    index = units["GlobalSecondaryIndexes"]["ranking"]
    return units["Table"]["CapacityUnits"], index["CapacityUnits"]


# Limit ends the read, so 504 players cost no more than three.
assert best(3) == (["eva", "ana", "kim"], 0.5)

# An improved score deletes an entry of the index and puts another one; a first score only puts one.
assert first("new", 0) == (1, 1)
assert improve("ben", 2200) == (1, 2)
assert best(3) == (["eva", "ben", "ana"], 0.5)
try:
    improve("ben", 2100)
    raise SystemExit("a score was lowered")
except scores.meta.client.exceptions.ConditionalCheckFailedException:
    pass

# The rank of one player counts all better ones. For a low rank it reads most of the index.
better = ranking("game = :game AND points > :points", {":points": 99}, Select="COUNT")
assert better["Count"] + 1 == 405
assert better["ConsumedCapacity"]["CapacityUnits"] == 1.5

print("top N: the three best of 504 cost 0.5 read units; an improved score costs 3 write units, a first one 2")
