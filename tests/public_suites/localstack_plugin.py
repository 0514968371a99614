"""Runs LocalStack's tests of DynamoDB on the store.

Only tests whose answers are recorded on AWS run; the others test LocalStack itself.
"""

import os
import sys
import types

import pytest
from botocore.client import BaseClient

# A function of the tests of Kinesis, whose own imports need Kinesis' client library. No test that runs here calls it.
KINESIS_TESTS = types.ModuleType("tests.aws.services.kinesis.test_kinesis")
KINESIS_TESTS.get_shard_iterator = None
sys.modules[KINESIS_TESTS.__name__] = KINESIS_TESTS

os.environ["TEST_SKIP_LOCALSTACK_START"] = "1"
os.environ["TEST_AWS_ENDPOINT_URL"] = os.environ["STORE_URL"]

API_CALL = BaseClient._make_api_call


def call_without_sts(client, operation, parameters):
    """Returns the store's account; the suite would request it from STS."""
    if operation == "GetCallerIdentity":
        return {"Account": "000000000000"}
    return API_CALL(client, operation, parameters)


BaseClient._make_api_call = call_without_sts


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("aws_validated") is None:
            item.add_marker(pytest.mark.skip(reason="its answers are not recorded on AWS"))
