"""Fixtures of pytest: a store, its clock, and templates that run. docs/testing.md shows them."""

from contextlib import ExitStack

import pytest

from weir_dynamodb.testing import Store, Up

# Variables that would make an SDK use keys and endpoints other than those of a fixture.
ELSEWHERE = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")


def _lead_sdks_to(running, monkeypatch):
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def weir_store_process():
    """The store of all tests of this process, for fixtures with a wide scope. No fixture empties it."""
    with Store() as store:
        yield store


@pytest.fixture
def weir_store(weir_store_process, monkeypatch):
    """A store without tables: `endpoint`, `clock`, `environment`. SDKs find it by environment variables."""
    _lead_sdks_to(weir_store_process, monkeypatch)
    yield weir_store_process
    weir_store_process.empty()


@pytest.fixture
def weir_clock(weir_store):
    """The clock of `weir_store`: `now()`, `advance(hours=26)`, `freeze()`, `resume()`, `sweep()`."""
    yield weir_store.clock
    weir_store.clock.resume()


@pytest.fixture
def weir_up(request, monkeypatch):
    """Starts `weir up` for a template, whose path is relative to the test's file.

    `weir_up("template.yaml", {"Stage": "test"})` returns the running `Up`. It ends with the test.
    """
    with ExitStack() as running:

        def start(template, parameters=None, **options):
            path = request.path.parent / template
            up = running.enter_context(Up(path, parameters, **options))
            _lead_sdks_to(up, monkeypatch)
            return up

        yield start
