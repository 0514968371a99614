"""Many to many: each enrolment is one item, and an inverted index reads it from the other side."""

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

campus = boto3.resource("dynamodb").Table("campus")

# From a student to the courses. The student's own item has the same partition key.
page = campus.query(
    KeyConditionExpression="id = :student",
    ExpressionAttributeValues={":student": "STUDENT#ana"},
    ReturnConsumedCapacity="TOTAL",
)
related = [item["related"] for item in page["Items"]]
assert related == ["COURSE#databases", "COURSE#networks", "STUDENT#ana"]
assert page["ConsumedCapacity"]["CapacityUnits"] == 0.5

# From a course to the students: the index has partition key and sort key exchanged.
page = campus.query(
    IndexName="inverted",
    KeyConditionExpression="related = :course",
    ExpressionAttributeValues={":course": "COURSE#databases"},
    ReturnConsumedCapacity="INDEXES",
)
ids = [item["id"] for item in page["Items"]]
assert ids == ["COURSE#databases", "STUDENT#ana", "STUDENT#ben"]
read = page["ConsumedCapacity"]
assert read["GlobalSecondaryIndexes"]["inverted"]["CapacityUnits"] == 0.5
assert read["Table"]["CapacityUnits"] == 0  # the index has all attributes, so the table is not read

# One enrolment is one write to the table and one to the index.
enrolment = {"id": "STUDENT#ben", "related": "COURSE#networks", "enrolled": "2026-03-09"}
written = campus.put_item(
    Item=enrolment,
    ConditionExpression="attribute_not_exists(id)",
    ReturnConsumedCapacity="INDEXES",
)["ConsumedCapacity"]
assert written["Table"]["CapacityUnits"] == 1
assert written["GlobalSecondaryIndexes"]["inverted"]["CapacityUnits"] == 1

# The condition refuses a second enrolment, so the date of the first one stays.
try:
    campus.put_item(Item=enrolment, ConditionExpression="attribute_not_exists(id)")
    raise SystemExit("the second enrolment was accepted")
except campus.meta.client.exceptions.ConditionalCheckFailedException:
    pass

print("many to many: 0.5 read units in each direction, 2 write units for each enrolment")
