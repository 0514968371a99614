"""Optimistic locking: a write succeeds only if the item still has the revision that was read."""

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

documents = boto3.resource("dynamodb").Table("documents")
Conflict = documents.meta.client.exceptions.ConditionalCheckFailedException


def read(document):
    return documents.get_item(Key={"document": document}, ConsistentRead=True)["Item"]


def save(document, seen, body):
    """Saves a document that was read with the revision `seen`. Returns the write units."""
    answer = documents.update_item(
        Key={"document": document},
        UpdateExpression="SET body = :body, revision = :next",
        ConditionExpression="revision = :seen",
        ExpressionAttributeValues={":body": body, ":seen": seen, ":next": seen + 1},
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"]["CapacityUnits"]


# Two clients read the same revision; one of them saves first.
ana, ben = read("d-1"), read("d-1")
assert save("d-1", ana["revision"], "Ana's text. " + "x" * 2500) == 3  # 2.5 KB, rounded up

# The other one would overwrite that text. The condition refuses it, and the error has the item.
try:
    save("d-1", ben["revision"], "Ben's text.")
    raise SystemExit("a lost update")
except Conflict as conflict:
    current = conflict.response["Item"]
assert current["revision"]["N"] == "2"
assert current["body"]["S"].startswith("Ana's text.")

# So the client can merge both texts and try again, without another read.
merged = current["body"]["S"] + " Ben's text."
assert save("d-1", int(current["revision"]["N"]), merged) == 3
final = read("d-1")
assert final["revision"] == 3
assert "Ana's text." in final["body"] and "Ben's text." in final["body"]

print("optimistic locking: no update is lost; the check costs nothing beyond the write itself")
