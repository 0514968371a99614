"""Time-ordered keys: identifiers that sort by time and are unique within a millisecond."""

import atexit
import json
import pathlib
import secrets
from datetime import datetime

import boto3

model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
dynamodb = boto3.client("dynamodb")
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])
dynamodb.batch_write_item(RequestItems=model["items"])

readings = boto3.resource("dynamodb").Table("readings")
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # the digits of base 32, in the order of their bytes


def encoded(number, digits):
    """Returns a number with a fixed count of digits, so that its strings sort like the numbers."""
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(digits)))


def milliseconds(time):
    return round(datetime.fromisoformat(time + "+00:00").timestamp() * 1000)


def new_id(time):
    """Returns a ULID: 48 bits of time, then 80 random bits."""
    return encoded(milliseconds(time), 10) + encoded(secrets.randbits(80), 16)


def between(month, first, last):
    """Returns the readings from the first to the last millisecond, and the read units."""
    page = readings.query(
        KeyConditionExpression="sensor_month = :month AND reading_id BETWEEN :first AND :last",
        ExpressionAttributeValues={
            ":month": f"s-1#{month}",
            ":first": encoded(milliseconds(first), 10) + "0" * 16,
            ":last": encoded(milliseconds(last), 10) + "Z" * 16,
        },
        ReturnConsumedCapacity="TOTAL",
    )
    celsius = [float(item["celsius"]) for item in page["Items"]]
    return celsius, page["ConsumedCapacity"]["CapacityUnits"]


# A range of time is a range of keys.
assert between("2026-03", "2026-03-01T09:00:00", "2026-03-01T09:00:01") == ([19.5, 19.6], 0.5)
assert between("2026-03", "2026-03-01T09:00:00", "2026-03-01T10:00:00") == ([19.5, 19.6, 20.1], 0.5)

# Fifty readings of the same millisecond: none replaces another.
for _ in range(50):
    written = readings.put_item(
        Item={
            "sensor_month": "s-1#2026-03",
            "reading_id": new_id("2026-03-31T23:59:00"),
            "celsius": 15,
        },
        ReturnConsumedCapacity="TOTAL",
    )
    assert written["ConsumedCapacity"]["CapacityUnits"] == 1
march, march_units = between("2026-03", "2026-03-31T23:00:00", "2026-04-01T01:00:00")
assert march == [15.0] * 50

# A range over two months is one Query for each, because the month is in the partition key.
april, april_units = between("2026-04", "2026-03-31T23:00:00", "2026-04-01T01:00:00")
assert april == [12.0]
assert (march_units, april_units) == (0.5, 0.5)

print("time-ordered keys: 51 readings of two months for 1 read unit, 50 of them of one millisecond")
