"""Tests with the pytest fixtures of `pip install weir-dynamodb`."""

import boto3

SESSIONS = {
    "TableName": "sessions",
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
}


def test_a_session_expires_after_a_day(weir_store, weir_clock):
    dynamodb = boto3.client("dynamodb")
    dynamodb.create_table(**SESSIONS)
    dynamodb.update_time_to_live(
        TableName="sessions", TimeToLiveSpecification={"Enabled": True, "AttributeName": "until"}
    )
    until = int(weir_clock.now().timestamp()) + 24 * 3600
    dynamodb.put_item(TableName="sessions", Item={"id": {"S": "ada"}, "until": {"N": str(until)}})
    weir_clock.advance(hours=23)
    weir_clock.sweep()
    assert "Item" in dynamodb.get_item(TableName="sessions", Key={"id": {"S": "ada"}})
    weir_clock.advance(hours=2)
    weir_clock.sweep()  # counts only the items that the store has not deleted by itself
    assert "Item" not in dynamodb.get_item(TableName="sessions", Key={"id": {"S": "ada"}})


def test_every_test_begins_without_tables(weir_store):
    assert boto3.client("dynamodb").list_tables()["TableNames"] == []


def test_votes_become_a_total(weir_up):
    up = weir_up("template.yaml")
    votes, totals = (boto3.resource("dynamodb").Table(name) for name in ("votes", "totals"))
    for slot in range(4):
        votes.put_item(Item={"slot": f"poll#{slot}", "votes": 10})
    votes.update_item(
        Key={"slot": "poll#2"}, UpdateExpression="ADD votes :one", ExpressionAttributeValues={":one": 1}
    )
    up.settle()
    assert totals.get_item(Key={"counter": "poll"})["Item"]["total"] == 41
