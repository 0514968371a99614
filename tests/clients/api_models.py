"""Compares what this product supports with the newest models of DynamoDB's APIs.

Reads the service models in botocore (PyPI): every operation, parameter and enum value of DynamoDB and
DynamoDB Streams, and of Lambda's event source mappings. Each must be in the sources, or be named in
docs/differences-from-dynamodb.md as not supported. So a new feature of the service fails this test
until it is supported or named there. Other tests check the behaviour.
"""

import gzip
import json
import pathlib
import sys

import botocore

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/differences-from-dynamodb.md"
STORE = ["local-store/server/src/api", "local-store/partition/src", "local-store/expression/src", "model/src"]
RUNNER = ["runner"]


def sources(folders):
    return "".join(path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.rs")))


def model(service):
    [folder] = [sorted((pathlib.Path(botocore.__file__).parent / "data" / service).iterdir())[-1]]
    [file] = list(folder.glob("service-2.json*"))
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return json.loads(text)


def missing(model, shape, path, known, named, seen):
    """Yields members and enum values below a shape that are neither known nor named. Does not
    descend into a member that the page names."""
    if shape in seen:
        return
    seen.add(shape)
    definition = model["shapes"][shape]
    for value in definition.get("enum", []):
        if not known(value) and not named(value):
            yield f"{path}={value}"
    children = list(definition.get("members", {}).items())
    if definition["type"] == "list":
        children = [("[]", definition["member"])]
    elif definition["type"] == "map":
        children = [("{}", definition["value"])]
    for name, child in children:
        is_member = definition["type"] == "structure"
        if is_member and named(name):
            continue
        if is_member and not known(name) and not known(child.get("locationName", name)):
            yield f"{path}.{name}"
            continue
        yield from missing(model, child["shape"], f"{path}.{name}", known, named, seen)


def main():
    page = (ROOT / PAGE).read_text()
    found, checked = [], 0
    for service, folders, operations in [
        ("dynamodb", STORE, None),
        ("dynamodbstreams", STORE, None),
        ("lambda", RUNNER, "EventSourceMapping"),
    ]:
        text = sources(folders)
        definition = model(service)
        known = lambda name: f'"{name}"' in text
        named = lambda name: f"`{name}`" in page
        for operation, parts in definition["operations"].items():
            if operations and operations not in operation:
                continue
            checked += 1
            # Mappings come from a template, so this operation's parameters are properties of the template.
            is_template = operation == "CreateEventSourceMapping"
            if not known(operation) and not is_template:
                if not named(operation):
                    found.append(f"{service} {operation}")
                continue
            found += missing(definition, parts["input"]["shape"], f"{service} {operation}", known, named, set())
    assert checked > 60, checked
    for line in found:
        print(f"neither supported nor named in {PAGE}: {line}")
    print(f"api_models: botocore {botocore.__version__}, {checked} operations, {len(found)} unknown")
    sys.exit(1 if found else 0)


main()
