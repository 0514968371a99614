"""Idempotent requests: a payment that a client sends twice is booked once."""

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

payments = boto3.resource("dynamodb").Table("payments")
client = payments.meta.client


def balance(wallet):
    answer = client.get_item(TableName="balances", Key={"wallet": wallet}, ConsistentRead=True)
    return answer["Item"]["cents"]


def record(payment, cents):
    """Puts a payment once. Returns whether this request did it."""
    try:
        answer = payments.put_item(
            Item={"payment": payment, "wallet": "w-2", "cents": cents},
            ConditionExpression="attribute_not_exists(payment)",
            ReturnConsumedCapacity="TOTAL",
        )
    except client.exceptions.ConditionalCheckFailedException:
        return False
    assert answer["ConsumedCapacity"]["CapacityUnits"] == 1
    return True


# One item: its key is the client's own identifier of the request, and a condition does the rest.
assert record("pay-2", 900) is True
assert record("pay-2", 900) is False

# Several items: with a token, DynamoDB answers a repeated transaction without applying it again.
transfer = {
    "ClientRequestToken": "pay-3",
    "ReturnConsumedCapacity": "TOTAL",
    "TransactItems": [
        {
            "Put": {
                "TableName": "payments",
                "Item": {"payment": "pay-3", "wallet": "w-1", "cents": 250},
                "ConditionExpression": "attribute_not_exists(payment)",
            }
        },
        {
            "Update": {
                "TableName": "balances",
                "Key": {"wallet": "w-1"},
                "UpdateExpression": "ADD cents :cents",
                "ExpressionAttributeValues": {":cents": 250},
            }
        },
    ],
}
assert balance("w-1") == 1500
first = client.transact_write_items(**transfer)
again = client.transact_write_items(**transfer)
assert balance("w-1") == 1750
assert sum(table["WriteCapacityUnits"] for table in first["ConsumedCapacity"]) == 4
assert sum(table["ReadCapacityUnits"] for table in again["ConsumedCapacity"]) == 4

# Ten minutes later the token has expired. The condition on the payment still protects it.
transfer["ClientRequestToken"] = "another"
try:
    client.transact_write_items(**transfer)
    raise SystemExit("the payment was booked twice")
except client.exceptions.TransactionCanceledException:
    assert balance("w-1") == 1750

print("idempotent put: sent three times, booked once: 4 write units, then 4 read units")
