"""Makes ScyllaDB's test/alternator treat the store as DynamoDB.

The suite's tests run against DynamoDB and against Scylla, and check with `is_aws` which of the two it is. The store claims to
be DynamoDB, so `is_aws` is true: the suite itself then skips the tests of Scylla's own features. Waits are the exception:
the suite waits up to an hour for DynamoDB, and its short waits for Scylla are the stricter test. Tests that Scylla is
known to fail run like all others; those that DynamoDB is known to fail are skipped.
"""

import os
import sys
import types

import pytest

# Gives a fixture of the suite session scope instead of module scope.
os.environ["SCYLLA_TEST_RUNNER"] = "runpy"
# The suite's conftest imports one fixture from the tests of CQL, which start a cluster of Scylla and need Python 3.12.
CQL_FIXTURES = types.ModuleType("test.cqlpy.conftest")
CQL_FIXTURES.host = pytest.fixture(lambda: None, name="host")
sys.modules["test.cqlpy.conftest"] = CQL_FIXTURES

SHORT_WAITS = ["test.alternator.util", "test.alternator.test_ttl"]


def pytest_configure(config):
    config.option.runxfail = True
    config.option.url = os.environ["STORE_URL"]


def pytest_collection_modifyitems(items):
    for name, module in list(sys.modules.items()):
        if not name.startswith("test.alternator."):
            continue
        if hasattr(module, "is_aws") and name not in SHORT_WAITS:
            module.is_aws = lambda _: True
        if hasattr(module, "get_region"):
            module.get_region = lambda dynamodb: dynamodb.meta.client.meta.region_name
        if name == "test.alternator.test_ttl":
            # The interval in seconds at which Scylla deletes expired items; the store does it more often.
            module.scylla_config_read = lambda *_: "1"
    for item in items:
        if "dynamodb_bug" in item.fixturenames:
            item.add_marker(pytest.mark.skip_env(reason="DynamoDB is known to fail it"))
