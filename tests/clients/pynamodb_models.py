"""PynamoDB: models with indexes, optimistic locking, transactions, batches."""

import os
from datetime import datetime, timezone

from pynamodb.attributes import (
    JSONAttribute, ListAttribute, NumberAttribute, UnicodeAttribute, UnicodeSetAttribute, UTCDateTimeAttribute,
    VersionAttribute,
)
from pynamodb.connection import Connection
from pynamodb.exceptions import DoesNotExist, PutError, TransactWriteError
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex, LocalSecondaryIndex, KeysOnlyProjection
from pynamodb.models import Model
from pynamodb.transactions import TransactGet, TransactWrite

URL = os.environ["AWS_ENDPOINT_URL_DYNAMODB"]


class ByAuthor(GlobalSecondaryIndex):
    class Meta:
        index_name = "by-author"
        projection = AllProjection()
        billing_mode = "PAY_PER_REQUEST"

    author = UnicodeAttribute(hash_key=True)
    posted = UTCDateTimeAttribute(range_key=True)


class ByViews(LocalSecondaryIndex):
    class Meta:
        index_name = "by-views"
        projection = KeysOnlyProjection()

    forum = UnicodeAttribute(hash_key=True)
    views = NumberAttribute(range_key=True)


class Thread(Model):
    class Meta:
        table_name = "threads"
        host = URL
        region = "us-east-1"
        billing_mode = "PAY_PER_REQUEST"

    forum = UnicodeAttribute(hash_key=True)
    subject = UnicodeAttribute(range_key=True)
    author = UnicodeAttribute()
    posted = UTCDateTimeAttribute()
    views = NumberAttribute(default=0)
    tags = UnicodeSetAttribute(null=True)
    replies = ListAttribute(default=list)
    extra = JSONAttribute(null=True)
    version = VersionAttribute()
    by_author = ByAuthor()
    by_views = ByViews()


assert not Thread.exists()
Thread.create_table(wait=True)
assert Thread.exists()
when = datetime(2026, 1, 1, tzinfo=timezone.utc)
with Thread.batch_write() as batch:
    for number in range(60):
        batch.save(Thread(forum=f"f{number % 2}", subject=f"s{number:02}", author=f"a{number % 3}",
                          posted=when.replace(minute=number), views=number, tags={"x", str(number)}))
assert Thread.count("f0") == 30
assert [thread.subject for thread in Thread.query("f1", Thread.subject.between("s03", "s07"))] == ["s03", "s05", "s07"]
assert [thread.views for thread in Thread.by_views.query("f0", Thread.views > 50)] == [52, 54, 56, 58]
recent = Thread.by_author.query("a1", Thread.posted >= when.replace(minute=40), scan_index_forward=False,
                                filter_condition=Thread.tags.contains("x"), limit=3)
assert [thread.views for thread in recent] == [58, 55, 52]
assert sum(1 for _ in Thread.scan(Thread.views.is_in(1, 2, 3), page_size=7)) == 3

one, other = Thread.get("f0", "s00"), Thread.get("f0", "s00")
one.update(actions=[Thread.views.set(Thread.views + 10), Thread.replies.set(Thread.replies.append(["hello"])),
                    Thread.extra.set({"a": [1]}), Thread.tags.delete({"x"})])
assert (one.views, one.replies, one.extra, one.tags) == (10, ["hello"], {"a": [1]}, {"0"})
try:
    other.save()
    raise AssertionError("the version has moved on")
except PutError as error:
    assert error.cause_response_code == "ConditionalCheckFailedException", error
other.refresh()
assert other.version == one.version == 1

connection = Connection(host=URL, region="us-east-1")
with TransactWrite(connection=connection, client_request_token="pynamodb-1") as transaction:
    transaction.save(Thread(forum="new", subject="made", author="a0", posted=when))
    transaction.delete(Thread.get("f1", "s01"))
try:
    with TransactWrite(connection=connection) as transaction:
        transaction.condition_check(Thread, "f1", "s01", condition=Thread.subject.exists())
        transaction.update(one, actions=[Thread.views.add(1)])
    raise AssertionError("the item is deleted")
except TransactWriteError as error:
    assert error.cancellation_reasons[0].code == "ConditionalCheckFailed", error
with TransactGet(connection=connection) as transaction:
    made = transaction.get(Thread, "new", "made")
assert made.get().author == "a0"
try:
    Thread.get("f1", "s01")
    raise AssertionError("it was deleted")
except DoesNotExist:
    pass
assert len(list(Thread.batch_get([("f0", f"s{number:02}") for number in range(0, 60, 2)]))) == 30
Thread.delete_table()
print("PynamoDB: models, indexes, versions, transactions and batches agree")
