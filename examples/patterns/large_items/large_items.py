"""Large items: the object is on S3, and the item has its key, size and checksum."""

import atexit
import hashlib
import json
import pathlib
import uuid

import boto3
from botocore.exceptions import ClientError

model = json.loads(pathlib.Path(__file__).with_name("model.json").read_text())
dynamodb = boto3.client("dynamodb")
for table in model["tables"]:
    dynamodb.create_table(**table)
    atexit.register(dynamodb.delete_table, TableName=table["TableName"])
    dynamodb.get_waiter("table_exists").wait(TableName=table["TableName"])
dynamodb.batch_write_item(RequestItems=model["items"])

recordings = boto3.resource("dynamodb").Table("recordings")
s3 = boto3.client("s3")
BUCKET = f"recordings-{uuid.uuid4()}"
s3.create_bucket(Bucket=BUCKET)
atexit.register(s3.delete_bucket, Bucket=BUCKET)


def save(recording, sound):
    """Uploads a sound, then writes its item. Returns the write units."""
    digest = hashlib.sha256(sound).hexdigest()
    key = f"recordings/{recording}/{digest[:32]}"  # another content has another key
    s3.put_object(Bucket=BUCKET, Key=key, Body=sound)
    atexit.register(s3.delete_object, Bucket=BUCKET, Key=key)
    answer = recordings.put_item(
        Item={"recording": recording, "object": key, "bytes": len(sound), "sha256": digest},
        ConditionExpression="attribute_not_exists(recording)",
        ReturnConsumedCapacity="TOTAL",
    )
    return answer["ConsumedCapacity"]["CapacityUnits"]


def load(recording):
    """Returns a sound after a comparison with its checksum, and the read units."""
    answer = recordings.get_item(Key={"recording": recording}, ReturnConsumedCapacity="TOTAL")
    item = answer["Item"]
    sound = s3.get_object(Bucket=BUCKET, Key=item["object"])["Body"].read()
    assert hashlib.sha256(sound).hexdigest() == item["sha256"]
    return sound, answer["ConsumedCapacity"]["CapacityUnits"]


# DynamoDB refuses an item of more than 400 KB.
sound = bytes(range(256)) * 4096  # 1 MB
try:
    recordings.put_item(Item={"recording": "r-7", "sound": sound})
    raise SystemExit("an item of 1 MB was accepted")
except ClientError as error:
    assert "Item size has exceeded the maximum allowed size" in str(error)

# A pointer of some 200 bytes costs one write unit and half a read unit, whatever it points at.
assert save("r-7", sound) == 1
assert load("r-7") == (sound, 0.5)

# The item is written last. A failure before it leaves an object without an item, and no reader
# ever sees an item without its object. A rule of the bucket can delete such objects.
s3.put_object(Bucket=BUCKET, Key="recordings/r-8/orphan", Body=sound)
atexit.register(s3.delete_object, Bucket=BUCKET, Key="recordings/r-8/orphan")
assert "Item" not in recordings.get_item(Key={"recording": "r-8"})

print("large items: 1 MB on S3, and 1 write unit and 0.5 read units for its item")
