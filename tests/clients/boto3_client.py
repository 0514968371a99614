"""boto3's client: waiters, paginators over every paged operation, errors by name, streams."""

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

client = boto3.client("dynamodb")
streams = boto3.client("dynamodbstreams")


def fails(name, call, **parameters):
    try:
        call(**parameters)
    except ClientError as error:
        assert error.response["Error"]["Code"] == name, error
        return error.response
    raise AssertionError(f"{name} was expected")


client.create_table(
    TableName="orders",
    BillingMode="PAY_PER_REQUEST",
    AttributeDefinitions=[
        {"AttributeName": name, "AttributeType": kind}
        for name, kind in [("customer", "S"), ("placed", "N"), ("status", "S")]
    ],
    KeySchema=[
        {"AttributeName": "customer", "KeyType": "HASH"},
        {"AttributeName": "placed", "KeyType": "RANGE"},
    ],
    GlobalSecondaryIndexes=[
        {
            "IndexName": "by-status",
            "KeySchema": [
                {"AttributeName": "status", "KeyType": "HASH"},
                {"AttributeName": "placed", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
    StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
)
client.get_waiter("table_exists").wait(TableName="orders")
fails("ResourceInUseException", client.create_table, TableName="orders",
      BillingMode="PAY_PER_REQUEST",
      AttributeDefinitions=[{"AttributeName": "a", "AttributeType": "S"}],
      KeySchema=[{"AttributeName": "a", "KeyType": "HASH"}])

for start in range(0, 200, 25):
    requests = [
        {
            "PutRequest": {
                "Item": {
                    "customer": {"S": f"c{number % 4}"},
                    "placed": {"N": str(number)},
                    "status": {"S": "open" if number % 5 else "closed"},
                    "blob": {"B": bytes(range(number))},
                }
            }
        }
        for number in range(start, start + 25)
    ]
    assert client.batch_write_item(RequestItems={"orders": requests})["UnprocessedItems"] == {}

# Pages of every size show everything once.
for size in (1, 7, 200):
    pages = client.get_paginator("scan").paginate(TableName="orders", PaginationConfig={"PageSize": size})
    seen = sorted(int(item["placed"]["N"]) for page in pages for item in page["Items"])
    assert seen == list(range(200)), size
pages = client.get_paginator("query").paginate(
    TableName="orders", IndexName="by-status", ScanIndexForward=False,
    KeyConditionExpression="#s = :s AND placed BETWEEN :low AND :high",
    ExpressionAttributeNames={"#s": "status"},
    ExpressionAttributeValues={":s": {"S": "closed"}, ":low": {"N": "50"}, ":high": {"N": "150"}},
    PaginationConfig={"PageSize": 4},
)
assert [int(item["placed"]["N"]) for page in pages for item in page["Items"]] == list(range(150, 49, -5))
segments = [
    item["placed"]["N"]
    for segment in range(3)
    for page in client.get_paginator("scan").paginate(TableName="orders", Segment=segment, TotalSegments=3)
    for item in page["Items"]
]
assert len(segments) == len(set(segments)) == 200
for number in range(5):
    client.create_table(
        TableName=f"empty-{number}", BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "a", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "a", "KeyType": "HASH"}],
    )
pages = client.get_paginator("list_tables").paginate(PaginationConfig={"PageSize": 2})
names = [name for page in pages for name in page["TableNames"]]
assert names == sorted(names) and {"orders", "empty-0", "empty-4"} <= set(names), names

# Errors have their names, also as classes, and contain the requested details.
key = {"customer": {"S": "c1"}, "placed": {"N": "1"}}
refused = fails(
    "ConditionalCheckFailedException", client.update_item, TableName="orders", Key=key,
    UpdateExpression="SET note = :n", ConditionExpression="#s = :n", ExpressionAttributeNames={"#s": "status"},
    ExpressionAttributeValues={":n": {"S": "x"}}, ReturnValuesOnConditionCheckFailure="ALL_OLD",
)
assert refused["Item"]["status"] == {"S": "open"}
cancelled = fails(
    "TransactionCanceledException", client.transact_write_items,
    TransactItems=[
        {"Put": {"TableName": "orders", "Item": {"customer": {"S": "new"}, "placed": {"N": "0"}}}},
        {"ConditionCheck": {"TableName": "orders", "Key": key, "ConditionExpression": "attribute_not_exists(customer)"}},
    ],
)
assert [reason["Code"] for reason in cancelled["CancellationReasons"]] == ["None", "ConditionalCheckFailed"]
fails("ValidationException", client.query, TableName="orders", KeyConditionExpression="nope")
fails("ResourceNotFoundException", client.describe_table, TableName="absent")
try:
    client.get_item(TableName="absent", Key=key)
    raise AssertionError("a table that is not there")
except client.exceptions.ResourceNotFoundException:
    pass

# Statements: pages by their token, batches whose statements fail separately, transactions with a condition.
seen, token = [], {}
while True:
    page = client.execute_statement(
        Statement='SELECT placed FROM "orders"."by-status" WHERE status = ? AND placed BETWEEN ? AND ?',
        Parameters=[{"S": "closed"}, {"N": "50"}, {"N": "150"}], Limit=4, **token)
    seen += [int(item["placed"]["N"]) for item in page["Items"]]
    if "NextToken" not in page:
        break
    token = {"NextToken": page["NextToken"]}
assert seen == list(range(50, 151, 5)), seen
answers = client.batch_execute_statement(Statements=[
    {"Statement": "INSERT INTO orders VALUE {'customer': 'p', 'placed': ?}", "Parameters": [{"N": "1"}]},
    {"Statement": "INSERT INTO orders VALUE {'customer': 'c1', 'placed': 1}"},
])["Responses"]
assert answers[0] == {"TableName": "orders"} and answers[1]["Error"]["Code"] == "DuplicateItem", answers
cancelled = fails(
    "TransactionCanceledException", client.execute_transaction,
    TransactStatements=[
        {"Statement": "DELETE FROM orders WHERE customer = 'p' AND placed = 1"},
        {"Statement": "EXISTS(SELECT * FROM orders WHERE customer = 'p' AND placed = 2 AND attribute_exists(status))"},
    ],
)
assert [reason["Code"] for reason in cancelled["CancellationReasons"]] == ["None", "ConditionalCheckFailed"]
deleted = client.execute_statement(Statement="DELETE FROM orders WHERE customer = 'p' AND placed = 1 RETURNING ALL OLD *")
assert deleted["Items"] == [{"customer": {"S": "p"}, "placed": {"N": "1"}}], deleted
fails("DuplicateItemException", client.execute_statement, Statement="INSERT INTO orders VALUE {'customer': 'c1', 'placed': 1}")

# Capacity, request ids and checksums, which botocore compares, come with every answer.
answer = client.get_item(TableName="orders", Key=key, ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
assert answer["ConsumedCapacity"] == {"TableName": "orders", "CapacityUnits": 1.0}, answer
headers = answer["ResponseMetadata"]["HTTPHeaders"]
assert len(answer["ResponseMetadata"]["RequestId"]) == 52 and headers["x-amz-crc32"].isdigit()
compressed = boto3.client("dynamodb", config=Config(request_min_compression_size_bytes=1))
assert compressed.get_item(TableName="orders", Key=key)["Item"] == answer["Item"]

arn = client.describe_table(TableName="orders")["Table"]["LatestStreamArn"]
records = []
for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
    iterator = streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
    records += streams.get_records(ShardIterator=iterator["ShardIterator"])["Records"]
counts = [sum(record["eventName"] == name for record in records) for name in ("INSERT", "REMOVE")]
assert counts == [201, 1], counts
fails("ValidationException", streams.get_records, ShardIterator=iterator["ShardIterator"][:-4] + "0000")

for name in ["orders", *(f"empty-{number}" for number in range(5))]:
    client.delete_table(TableName=name)
    client.get_waiter("table_not_exists").wait(TableName=name)
print("boto3 client: waiters, paginators, errors, transactions, statements, capacity and streams agree")
