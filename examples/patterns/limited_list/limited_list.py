"""A limited list and a limited set: one keeps the newest few, the other admits only a few."""

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
visitors, workshops = resource.Table("visitors"), resource.Table("workshops")
Refused = visitors.meta.client.exceptions.ConditionalCheckFailedException
LIMIT = 5


def visit(visitor, page):
    """Puts a page at the front of a list, and removes the entries beyond the limit."""
    answer = visitors.update_item(
        Key={"visitor": visitor},
        UpdateExpression="SET recent = list_append(:page, recent)",
        ExpressionAttributeValues={":page": [page]},
        ReturnValues="UPDATED_NEW",
        ReturnConsumedCapacity="TOTAL",
    )
    units, excess = answer["ConsumedCapacity"]["CapacityUnits"], len(answer["Attributes"]["recent"])
    if excess > LIMIT:
        # The end of the list, so what another client puts at the front meanwhile is kept.
        answer = visitors.update_item(
            Key={"visitor": visitor},
            UpdateExpression="REMOVE "
            + ", ".join(f"recent[{index}]" for index in range(LIMIT, excess)),
            ReturnConsumedCapacity="TOTAL",
        )
        units += answer["ConsumedCapacity"]["CapacityUnits"]
    return units


def reserve(workshop, guest, seats):
    """Takes one of the seats of a workshop; taking it again changes nothing."""
    answer = workshops.update_item(
        Key={"workshop": workshop},
        UpdateExpression="ADD seats :guest",
        ConditionExpression="size(seats) < :limit OR contains(seats, :name)",
        ExpressionAttributeValues={":guest": {guest}, ":name": guest, ":limit": seats},
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"]["CapacityUnits"]


# A list: one update while there is room, and a second one when it is full.
assert visit("v-2", "p-9") == 1
assert visit("v-1", "p-6") == 2
recent = visitors.get_item(Key={"visitor": "v-1"}, ConsistentRead=True)["Item"]["recent"]
assert recent == ["p-6", "p-5", "p-4", "p-3", "p-2"]

# A set: the condition is evaluated with the write, so two clients cannot take the last seat.
assert reserve("pottery", "eva", seats=3) == 1
assert reserve("pottery", "eva", seats=3) == 1
try:
    reserve("pottery", "kim", seats=3)
    raise SystemExit("four guests on three seats")
except Refused:
    pass
seats = workshops.get_item(Key={"workshop": "pottery"}, ConsistentRead=True)["Item"]["seats"]
assert seats == {"ana", "ben", "eva"}

print("limited list: 2 write units when full; limited set: 1 write unit, the fourth guest refused")
