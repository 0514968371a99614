"""Runs LocalStack's tests of DynamoDB on the store.

Only tests whose answers are recorded on AWS run; the others test LocalStack itself.
"""

import os

import pytest

os.environ["TEST_SKIP_LOCALSTACK_START"] = "1"
os.environ["TEST_AWS_ENDPOINT_URL"] = os.environ["STORE_URL"]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("aws_validated") is None:
            item.add_marker(pytest.mark.skip(reason="its answers are not recorded on AWS"))
