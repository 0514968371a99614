"""A job queue: a worker takes a job with a lease; an unfinished job becomes visible again after it."""

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

jobs = boto3.resource("dynamodb").Table("jobs")
TakenByAnother = jobs.meta.client.exceptions.ConditionalCheckFailedException
LEASE = 30  # seconds


def visible(queue, now):
    """Returns the jobs that wait, the oldest first. Finished jobs are not in the index."""
    page = jobs.query(
        IndexName="waiting",
        KeyConditionExpression="waiting_in = :queue AND visible_at <= :now",
        ExpressionAttributeValues={":queue": queue, ":now": now},
        Limit=10,
        ReturnConsumedCapacity="TOTAL",
    )
    assert page["ConsumedCapacity"]["CapacityUnits"] == 0.5
    return page["Items"]


def take(job, now):
    """Takes a job until the lease ends. Only one of several workers succeeds."""
    answer = jobs.update_item(
        Key={"job": job["job"]},
        UpdateExpression="SET visible_at = :until ADD attempts :one",
        ConditionExpression="visible_at = :seen",
        ExpressionAttributeValues={":seen": job["visible_at"], ":until": now + LEASE, ":one": 1},
        ReturnValues="ALL_NEW",
        ReturnConsumedCapacity="INDEXES",
    )
    # The time is in the key of the index: its entry is deleted and put again.
    units = answer["ConsumedCapacity"]
    assert units["Table"]["CapacityUnits"] == 1
    assert units["GlobalSecondaryIndexes"]["waiting"]["CapacityUnits"] == 2
    return answer["Attributes"]


def finish(job, now):
    """Finishes a job, if the lease that this worker took is still the last one."""
    answer = jobs.update_item(
        Key={"job": job["job"]},
        UpdateExpression="REMOVE waiting_in, visible_at SET done_at = :now",
        ConditionExpression="visible_at = :until",
        ExpressionAttributeValues={":until": job["visible_at"], ":now": now},
        ReturnConsumedCapacity="TOTAL",
    )
    assert answer["ConsumedCapacity"]["CapacityUnits"] == 2


def refused(call, *arguments):
    try:
        call(*arguments)
    except TakenByAnother:
        return True
    return False


# Two workers see the same job. One of them takes it.
oldest = visible("mail", now=1010)[0]
first = take(oldest, now=1010)
assert first["job"] == "j-1" and first["attempts"] == 1
assert refused(take, oldest, 1010)

# While the lease lasts, the job is invisible; afterwards another worker takes it.
assert [job["job"] for job in visible("mail", now=1039)] == ["j-2"]
second = take(visible("mail", now=1040)[1], now=1040)
assert second["job"] == "j-1" and second["attempts"] == 2

# The first worker was too slow, so it cannot finish a job that another worker has taken.
assert refused(finish, first, 1041)
finish(second, 1045)
assert [job["job"] for job in visible("mail", now=1_000_000)] == ["j-2", "j-3"]

print("job queue: 0.5 read units to look, 3 write units to take; a slow worker is fenced off")
