"""TTL with a filter: DynamoDB deletes expired items late, so readers leave them out themselves."""

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

sessions = boto3.resource("dynamodb").Table("sessions")
dynamodb.update_time_to_live(
    TableName="sessions",
    TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"},
)

# The clock of the application. By this clock, s-1 has expired, but is not deleted yet.
NOW = 4_102_446_000  # seconds, as TTL demands


def live_sessions(visitor, **options):
    return sessions.query(
        KeyConditionExpression="visitor = :visitor",
        FilterExpression="expires_at > :now",
        ExpressionAttributeValues={":visitor": visitor, ":now": NOW},
        ReturnConsumedCapacity="TOTAL",
        **options,
    )


# The filter hides what has expired. It does not make the Query cheaper.
page = live_sessions("v-1")
assert [item["session"] for item in page["Items"]] == ["s-2"]
assert (page["ScannedCount"], page["Count"]) == (2, 1)
assert page["ConsumedCapacity"]["CapacityUnits"] == 0.5

# Limit counts the items that are read, not those that pass the filter: an empty page is not the end.
page = live_sessions("v-1", Limit=1)
assert page["Items"] == [] and "LastEvaluatedKey" in page
page = live_sessions("v-1", Limit=1, ExclusiveStartKey=page["LastEvaluatedKey"])
assert [item["session"] for item in page["Items"]] == ["s-2"]


def extend(session, seconds):
    """Extends a session, unless it has expired. Returns the write units."""
    answer = sessions.update_item(
        Key={"visitor": "v-1", "session": session},
        UpdateExpression="SET expires_at = :later",
        ConditionExpression="expires_at > :now",
        ExpressionAttributeValues={":now": NOW, ":later": NOW + seconds},
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"]["CapacityUnits"]


# A write needs the same condition. Otherwise it revives a session that a reader saw expire.
assert extend("s-2", 3600) == 1
try:
    extend("s-1", 3600)
    raise SystemExit("an expired session was extended")
except sessions.meta.client.exceptions.ConditionalCheckFailedException:
    pass

print("TTL with a filter: the expired session is hidden, and the Query costs 0.5 read units anyway")
