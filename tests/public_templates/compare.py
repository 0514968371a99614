"""Compares the verdicts of `sam validate`, cfn-lint and `weir check` on public templates with DynamoDB streams.

Reads the addresses in addresses.tsv (repository, commit, path) and the reasons in reasons.tsv, and writes verdicts.tsv.
The templates themselves are read from clones, so nothing here fetches anything:

    for each repository of addresses.tsv: git clone --bare https://github.com/OWNER/NAME CLONES/OWNER/NAME
    tests/public_templates/compare.py --clones CLONES --tools VENV/bin --weir target/debug/weir

VENV is a virtual environment with the packages aws-sam-cli and cfn-lint. The verdicts in verdicts.tsv are of
2026-11-28, aws-sam-cli 1.170.0 (aws-sam-translator 1.115.0) and cfn-lint 1.58.0. `--keep` runs only weir.

Some templates have SAM's types but no `Transform`, such as the SAM translator's own test inputs. They are checked with
the line `Transform: AWS::Serverless-2016-10-31` before them, as in those tests.

A verdict is `accepts` or `refuses`; a template with warnings counts as accepted. The exit code is 1 if a verdict of
`weir check` differs from the other two and reasons.tsv has no reason for it, or has one that no longer applies.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SECONDS_MAX = 300
SAM = "AWS::Serverless-2016-10-31"


def rows(name):
    for line in (HERE / name).read_text(encoding="utf-8").splitlines()[1:]:
        yield line.split("\t")


def run(command, **settings):
    environment = {**os.environ, "SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "us-east-1"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=SECONDS_MAX, env=environment, **settings
    )


def short(text):
    return re.sub(r"\s+", " ", text).strip()[:160]


def sam(tools, template, text):
    """Runs `sam validate`, which validates SAM templates only and accepts all others."""
    if SAM not in text:
        return "no SAM", ""
    done = run([tools / "sam", "validate", "--region", "us-east-1", "--template", template])
    if done.returncode == 0:
        return "accepts", ""
    said = [line for line in done.stderr.splitlines() if line.startswith("Error")] or done.stderr.splitlines()[-1:]
    return "refuses", short(said[0] if said else "").replace(str(template), "template")


def cfn_lint(tools, template):
    done = run([tools / "cfn-lint", "--format", "json", "--regions", "us-east-1", "--template", template])
    try:
        found = json.loads(done.stdout or "[]")
    except ValueError:
        return "fails", short(done.stderr)
    errors = [f"{it['Rule']['Id']} {it['Message']}" for it in found if it["Level"] == "Error"]
    return ("refuses", short(errors[0])) if errors else ("accepts", "")


def weir(program, template):
    done = run([program, "check", "--output", "json", "--template", template], cwd=template.parent)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return "fails", short(done.stderr)
    errors = [it["message"] for it in found["findings"] if it["severity"] == "error"]
    return ("refuses", short(errors[0])) if found["errors"] else ("accepts", "")


def judge(arguments, address):
    repository, commit, path = address
    known = arguments.known.get("\t".join(address))
    git = ["git", "--git-dir", arguments.clones / repository, "show", f"{commit}:{path}"]
    shown = subprocess.run(git, capture_output=True, timeout=SECONDS_MAX)
    if shown.returncode != 0:
        return [*address, "absent", "absent", "absent", "", "", ""]
    with tempfile.TemporaryDirectory() as folder:
        template = pathlib.Path(folder, "template.json" if path.endswith(".json") else "template.yaml")
        text = shown.stdout.decode(errors="replace")
        if "AWS::Serverless::" in text and SAM not in text and not path.endswith(".json"):
            text = f"Transform: {SAM}\n{text}"
        template.write_text(text, encoding="utf-8")
        (by_sam, sam_said), (by_lint, lint_said) = known or (
            sam(arguments.tools, template, text),
            cfn_lint(arguments.tools, template),
        )
        by_weir, weir_said = weir(arguments.weir, template)
    return [*address, by_sam, by_lint, by_weir, sam_said, lint_said, weir_said]


def differs(row):
    others = {row[3], row[4]} - {"no SAM"}
    wanted = "refuses" if "refuses" in others else "accepts"
    return row[5] != wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=pathlib.Path, required=True)
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    parser.add_argument("--weir", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="take the verdicts of the other two from verdicts.tsv")
    arguments = parser.parse_args()
    arguments.known = {}
    if arguments.keep and (HERE / "verdicts.tsv").exists():
        for row in rows("verdicts.tsv"):
            arguments.known["\t".join(row[:3])] = (row[3], row[7]), (row[4], row[8])
    for name in ("clones", "tools", "weir"):
        setattr(arguments, name, getattr(arguments, name).resolve())
    addresses = list(rows("addresses.tsv"))
    reasons = {(repository, path): reason for repository, path, reason in rows("reasons.tsv")}
    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
        judged = list(pool.map(lambda address: judge(arguments, address), addresses))
    heading = "repository\tcommit\tpath\tsam validate\tcfn-lint\tweir check\tdifference\tsam says\tcfn-lint says\tweir says"
    lines, unexplained, used = [heading], [], set()
    for row in judged:
        place = (row[0], row[2])
        reason = ""
        if differs(row):
            reason = reasons.get(place, "")
            used.add(place)
            if not reason:
                unexplained.append(row)
        lines.append("\t".join([*row[:6], reason, *row[6:]]))
    (HERE / "verdicts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for row in unexplained:
        print(f"unexplained: {row[0]} {row[2]}: sam {row[3]} ({row[6]}), cfn-lint {row[4]} ({row[7]}), weir {row[5]} ({row[8]})")
    stale = sorted(set(reasons) - used)
    for repository, path in stale:
        print(f"no difference any more: {repository} {path}")
    absent = sum(row[5] == "absent" for row in judged)
    print(f"{len(judged)} templates, {sum(map(differs, judged))} differences, {len(unexplained)} unexplained, {absent} absent")
    return 1 if unexplained or stale or absent else 0


if __name__ == "__main__":
    sys.exit(main())
