"""Runs the public suites in each configuration of the store, and compares the outcomes with the tables beside it.

`run` installs the suites' packages and calls this. It writes target/public_suites/outcomes.tsv: suite, test, and one
column for each configuration with `passed`, `passed alone`, `failed` or `skipped`. Failed tests run again, at most three
times, without the tests that passed: tests of a suite share tables, and many read a global index right after a write,
when it is a few milliseconds behind with several arcs.

- reasons.tsv names each test that fails, the configurations in which it does, and why.
- results.tsv is the newest record; `--write` replaces the rows of the suites that ran.

The exit code is 1 if a failed test has no reason, if a reason's test does not fail, or if a test of the record did not
run. `--suite NAME` runs one suite. `--only TEXT` runs the files whose name contains TEXT, and writes no record.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CONFIGURATIONS = {"one arc": [], "four arcs, enforced": ["--arcs", "4", "--throughput", "enforce"]}
START_SECONDS_MAX = 120
RUNS_ALONE_MAX = 3
# The exit codes of pytest after it has run all tests: all passed, or some failed.
PYTEST_FINISHED = (0, 1)
# A test waits at most four minutes for an item to expire.
TEST_SECONDS_MAX = 300
# The access key that test/alternator signs with when it finds no Scylla.
ALTERNATOR_KEY = "[alternator]\naws_access_key_id = unknownuser\naws_secret_access_key = unknownsecret\n"
# The files of the suites have their own markers; those of `pytest.ini` there need packages that no test here uses.
PYTEST_INI = """[pytest]
asyncio_mode = auto
markers =
    skip_bug: -
    skip_env: -
    skip_mode: -
    slow: -
"""


class Suite:
    """A public suite. `folders` are checked out of the clone; `tests` are the paths that pytest collects."""

    def __init__(self, repository, commit, folders, tests, plugin, python_path, keys=""):
        self.repository, self.commit, self.folders, self.tests = repository, commit, folders, tests
        self.plugin, self.python_path, self.keys = plugin, python_path, keys


SUITES = {
    "alternator": Suite(
        "scylladb/scylladb",
        "f4a4091ca28efb8c06c3422fdaac1d2f02e5614f",
        ["test/alternator", "test/pylib", "test/cqlpy"],
        ["test/alternator"],
        "alternator_plugin",
        ["."],
        ALTERNATOR_KEY,
    ),
    "localstack": Suite(
        "localstack/localstack",
        "8b9a79f05846835cf4dff63ab7eefdde9df83783",
        ["tests/aws/services/dynamodb", "tests/aws/services/dynamodbstreams"],
        ["tests/aws/services/dynamodb", "tests/aws/services/dynamodbstreams"],
        "localstack_plugin",
        ["."],
    ),
}
# Single files beside the folders, where the suite has them.
FILES = ["test/__init__.py", "test/conftest.py", "tests/__init__.py", "tests/conftest.py", "tests/aws/__init__.py"]
FILES += ["tests/aws/conftest.py", "tests/aws/services/__init__.py"]


def check_out(clone, suite, target):
    """Writes the suite's folders at its commit into an empty folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    git = ["git", "-C", str(clone)]
    for folder in suite.folders:
        (target / folder).mkdir(parents=True)
        archive = subprocess.run([*git, "archive", f"{suite.commit}:{folder}"], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(target / folder)], input=archive.stdout, check=True)
    for file in FILES:
        found = subprocess.run([*git, "show", f"{suite.commit}:{file}"], capture_output=True, check=False)
        if found.returncode == 0:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            (target / file).write_bytes(found.stdout)
    (target / "pytest.ini").write_text(PYTEST_INI, encoding="utf-8")


def start_store(store, folder, options, keys):
    """Starts a store with an empty directory. Returns the process and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [str(store), "--data", str(folder / "data"), "--port", str(port), *options]
    if keys:
        (folder / "keys").write_text(keys, encoding="utf-8")
        command += ["--access-keys", str(folder / "keys")]
    with (folder / "store.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    until = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://127.0.0.1:{port}"
        time.sleep(0.2)
    process.kill()
    sys.exit(f"the store does not start: {folder / 'store.log'}")


def run_tests(python, suite, checkout, url, tests, outcomes):
    """Runs tests by pytest. Returns the outcome and the error of each by its name."""
    paths = [str(HERE), *(str(checkout / path) for path in suite.python_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "STORE_URL": url}
    command = [str(python), "-m", "pytest", "-q", "-c", "pytest.ini", "--rootdir=.", "-p", "no:cacheprovider"]
    command += ["-p", "outcomes", "-p", suite.plugin, f"--outcomes={outcomes}", f"--timeout={TEST_SECONDS_MAX}"]
    with outcomes.with_suffix(".log").open("w", encoding="utf-8") as log:
        run = subprocess.run([*command, *tests], cwd=checkout, env=environment, stdout=log, stderr=log, check=False)
    if run.returncode not in PYTEST_FINISHED:
        sys.exit(f"pytest did not finish, exit code {run.returncode}: {outcomes.with_suffix('.log')}")
    found = {}
    for line in outcomes.read_text(encoding="utf-8").splitlines():
        name, outcome, error = line.split("\t")
        # An error after a test, while it cleans up, counts.
        if found.get(name, ("", ""))[0] != "failed":
            found[name] = (outcome, error)
    if not found:
        sys.exit(f"no test ran: {outcomes.with_suffix('.log')}")
    return found


def run_suite(name, given, checkout, options, folder):
    """Runs a suite on a new store. Returns the outcome of each test."""
    suite, python = SUITES[name], given.tools / name / "bin/python"
    tests = suite.tests
    if given.only:
        files = (file for part in suite.tests for file in (checkout / part).glob("test_*.py"))
        tests = sorted(str(file.relative_to(checkout)) for file in files if given.only in file.name)
    if not tests:
        return {}
    process, url = start_store(given.store.resolve(), folder, options, suite.keys)
    try:
        found = run_tests(python, suite, checkout, url, tests, folder / "first.tsv")
        outcomes = {test: outcome for test, (outcome, _) in found.items()}
        failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
        first = {test: found[test][1] for test in failed}
        for _ in range(RUNS_ALONE_MAX if failed else 0):
            again = run_tests(python, suite, checkout, url, failed, folder / "again.tsv")
            passed = [test for test in failed if again.get(test, ("failed", ""))[0] == "passed"]
            outcomes.update((test, "passed alone") for test in passed)
            failed = [test for test in failed if test not in passed]
            if not passed or not failed:
                break
        for test, error in first.items():
            print(f"{name}: {test}: {outcomes[test]}: {error}", flush=True)
    finally:
        process.terminate()
        process.wait(60)
    return outcomes


def read_reasons():
    """Returns the reason of each failed test: by suite and test, the configurations and the reason."""
    lines = (HERE / "reasons.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return {(suite, test): configurations for suite, test, configurations, reason in rows if reason}


def compare(table, reasons, recorded, is_whole):
    """Prints failures without a reason, reasons without a failure, and recorded tests that did not run. Returns their
    number."""
    wrong = 0
    for (suite, test), outcomes in table.items():
        expected = reasons.get((suite, test))
        for configuration, outcome in outcomes.items():
            is_expected = expected in ("all", configuration)
            if outcome == "failed" and not is_expected:
                print(f"no reason in reasons.tsv: {suite}: {test} ({configuration})")
                wrong += 1
            if outcome.startswith("passed") and is_expected:
                print(f"reasons.tsv has a reason, but the test passes: {suite}: {test} ({configuration})")
                wrong += 1
    ran = {suite for suite, _ in table} if is_whole else ()
    for suite, test in reasons.keys() - table.keys():
        if suite in ran:
            print(f"reasons.tsv has a reason, but there is no such test: {suite}: {test}")
            wrong += 1
    for (suite, test), outcomes in recorded.items():
        for configuration, outcome in outcomes.items():
            did_run = outcome == "absent" or configuration in table.get((suite, test), {})
            if suite in ran and not did_run:
                print(f"in results.tsv, but it did not run: {suite}: {test} ({configuration})")
                wrong += 1
    return wrong


def read_table(path):
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else [""]
    rows = [line.split("\t") for line in lines[1:]]
    return {(suite, test): dict(zip(CONFIGURATIONS, outcomes)) for suite, test, *outcomes in rows}


def write_table(path, table):
    lines = ["\t".join(["suite", "test", *CONFIGURATIONS])]
    for (suite, test), outcomes in sorted(table.items()):
        lines.append("\t".join([suite, test, *(outcomes.get(name, "absent") for name in CONFIGURATIONS)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=pathlib.Path, required=True)
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--suite", choices=SUITES)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    table = collections.defaultdict(dict)
    for name in [given.suite] if given.suite else SUITES:
        checkout = given.tools / "checkouts" / name
        check_out(given.clones / SUITES[name].repository, SUITES[name], checkout)
        folders = [given.tools / "runs" / f"{name}-{number}" for number in range(len(CONFIGURATIONS))]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            runs = [
                pool.submit(run_suite, name, given, checkout, options, folder)
                for options, folder in zip(CONFIGURATIONS.values(), folders)
            ]
        for configuration, run in zip(CONFIGURATIONS, runs):
            for test, outcome in run.result().items():
                table[name, test][configuration] = outcome
    write_table(given.tools / "outcomes.tsv", table)
    if given.write and not given.only:
        ran = {suite for suite, _ in table}
        kept = {key: outcomes for key, outcomes in read_table(HERE / "results.tsv").items() if key[0] not in ran}
        write_table(HERE / "results.tsv", {**kept, **table})
    for name in sorted({suite for suite, _ in table}):
        for configuration in CONFIGURATIONS:
            counts = collections.Counter(
                outcomes.get(configuration) for (suite, _), outcomes in table.items() if suite == name
            )
            print(f"{name}, {configuration}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return 1 if compare(table, read_reasons(), read_table(HERE / "results.tsv"), not given.only) else 0


if __name__ == "__main__":
    sys.exit(main())
