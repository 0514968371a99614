"""Processes the changes of a table, in order, and reports the first one that fails."""

import json
from collections import OrderedDict

REMEMBERED_MAX = 10_000
_remembered = OrderedDict()


def handler(event, _context):
    """Returns the record to retry from, so that Lambda does not deliver the entire batch again."""
    for record in event["Records"]:
        event_id = record["eventID"]
        if event_id in _remembered:
            continue
        try:
            process(event_id, record["eventName"], record["dynamodb"])
        except Exception as error:
            print(json.dumps({"level": "ERROR", "eventID": event_id, "error": repr(error)}))
            return {"batchItemFailures": [{"itemIdentifier": record["dynamodb"]["SequenceNumber"]}]}
        _remember(event_id)
    return {"batchItemFailures": []}


def process(event_id, name, change):
    """Does the work for one change. Another instance may get the same change once more: make an effect
    outside of this process idempotent, such as by a write on condition that `event_id` is new."""
    print(json.dumps({"eventID": event_id, "eventName": name, "keys": change["Keys"]}))


def _remember(event_id):
    _remembered[event_id] = None
    if len(_remembered) > REMEMBERED_MAX:
        _remembered.popitem(last=False)
