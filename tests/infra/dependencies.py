"""Checks every dependency against deny.toml, and writes a software bill of materials.

Licences, sources and duplicate versions, from `cargo metadata`. With a file name it also writes the bill
there, as CycloneDX 1.5 JSON: name, version, licence and checksum of every crate that can be in a build.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict

ROOT = pathlib.Path(__file__).resolve().parents[2]


def metadata():
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def is_allowed(expression, allowed):
    """Evaluates an SPDX expression: `OR` needs one licence, `AND` all."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def alternative():
        found = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            other = conjunction()
            found = found or other
        return found

    def conjunction():
        found = licence()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            other = licence()
            found = found and other
        return found

    def licence():
        token = tokens.pop(0)
        if token == "(":
            found = alternative()
            tokens.pop(0)
            return found
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in allowed

    return alternative()


def problems(rules, crates):
    allowed = set(rules["licenses"]["allow"])
    skipped = {entry["crate"] for entry in rules["bans"]["skip"]}
    versions = defaultdict(set)
    for crate in crates:
        name = f"{crate['name']} {crate['version']}"
        versions[crate["name"]].add(crate["version"])
        if not crate["license"] or not is_allowed(crate["license"], allowed):
            yield f"{name}: licence `{crate['license']}` is not in deny.toml"
        if "index" not in (crate["source"] or "") or not crate["source"].startswith("registry+"):
            yield f"{name}: not from the crate registry: `{crate['source']}`"
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in skipped:
            yield f"{name}: versions {', '.join(sorted(found))}; use one, or say why in deny.toml"
    for name in sorted(skipped):
        if len(versions[name]) < 2:
            yield f"{name}: deny.toml skips it, but there is one version; remove the line"


def bill(crates):
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    components = [
        {
            "type": "library",
            "name": crate["name"],
            "version": crate["version"],
            "purl": f"pkg:cargo/{crate['name']}@{crate['version']}",
            "licenses": [{"expression": crate["license"].replace("/", " OR ")}],
            "hashes": [{"alg": "SHA-256", "content": checksums[crate["name"], crate["version"]]}],
        }
        for crate in crates
    ]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}


def main():
    assert is_allowed("(MIT OR GPL-2.0) AND ISC", {"MIT", "ISC"})
    assert not is_allowed("MIT AND GPL-2.0", {"MIT"}) and not is_allowed("GPL-2.0", {"MIT"})
    found = metadata()
    own = set(found["workspace_members"])
    crates = sorted((p for p in found["packages"] if p["id"] not in own), key=lambda p: p["id"])
    assert len(crates) > 100, len(crates)
    complaints = list(problems(tomllib.loads((ROOT / "deny.toml").read_text()), crates))
    for complaint in complaints:
        print(complaint)
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(bill(crates), indent=1) + "\n")
    print(f"dependencies: {len(crates)} crates, {len(complaints)} problems")
    sys.exit(1 if complaints else 0)


main()
