"""Tests of the handler, without AWS and without dependencies: `python3 -m unittest`."""

import unittest
from unittest import mock

from function import app


def record(number):
    change = {"Keys": {"id": {"S": "1"}}, "SequenceNumber": str(number)}
    return {"eventID": f"event-{number}", "eventName": "INSERT", "dynamodb": change}


class Handler(unittest.TestCase):
    def setUp(self):
        app._remembered.clear()

    def handle(self, *records, failing=()):
        def process(event_id, _name, _change):
            if event_id in failing:
                raise ValueError(event_id)
            self.processed.append(event_id)

        self.processed = []
        with mock.patch.object(app, "process", process), mock.patch("builtins.print"):
            answer = app.handler({"Records": list(records)}, None)
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def test_every_record_is_processed_in_order(self):
        self.assertEqual(self.handle(record(1), record(2)), [])
        self.assertEqual(self.processed, ["event-1", "event-2"])

    def test_the_first_failure_is_where_lambda_retries_from(self):
        self.assertEqual(self.handle(record(1), record(2), record(3), failing=["event-2"]), ["2"])
        self.assertEqual(self.processed, ["event-1"])
        self.assertEqual(self.handle(record(2), record(3)), [])

    def test_a_record_that_is_delivered_twice_is_processed_once(self):
        self.handle(record(1), record(2))
        self.assertEqual(self.handle(record(1), record(2), record(3)), [])
        self.assertEqual(self.processed, ["event-3"])


if __name__ == "__main__":
    unittest.main()
