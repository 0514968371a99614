"""A pytest plugin that writes one line for each test: its name, outcome and, after a failure, the last line of the error."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--outcomes", required=True, help="file for the outcomes")


class Outcomes:
    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and report.passed:
            return
        error = ""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            error = " ".join((crash.message if crash else str(report.longrepr)).split())[:300]
        print(report.nodeid, report.outcome, error, sep="\t", file=self.file, flush=True)


def pytest_configure(config):
    config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))
