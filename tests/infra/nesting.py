"""Puts the resources of nested stacks into the template that nests them.

A nested template is plain CloudFormation. A parameter becomes the value that the outer template gives. A condition is
decided when that value decides it; otherwise it depends on a parameter of the outer template and is kept.
"""

import json
import pathlib
import re
from collections import Counter

from samtranslator.yaml_helper import yaml_parse

STACK = "AWS::CloudFormation::Stack"
NO_VALUE = {"Ref": "AWS::NoValue"}
# These pseudo-parameters differ between a nested stack and the outer one.
OF_ONE_STACK = {"AWS::StackName", "AWS::StackId"}


def inline(template, folder):
    """Returns the template without nested stacks; it has their resources instead."""
    template = json.loads(json.dumps(template))
    for stack in of_stacks(template).values():
        stack["TemplateURL"] = str(folder / stack["TemplateURL"])
    # From the outside in, so that a parameter's value decides conditions at any depth.
    while stacks := of_stacks(template):
        template = inline_these(template, stacks)
    return template


def of_stacks(template):
    """Returns the properties of each nested stack."""
    return {name: r["Properties"] for name, r in template["Resources"].items() if r["Type"] == STACK}


def inline_these(template, stacks):
    """Returns the template with the resources of these stacks, which may be stacks in turn."""
    uses = Counter(stack["TemplateURL"] for stack in stacks.values())
    outputs = {}
    for name, stack in stacks.items():
        path = pathlib.Path(stack["TemplateURL"])
        inner = json.loads(json.dumps(yaml_parse(path.read_text())))
        for deeper in of_stacks(inner).values():
            deeper["TemplateURL"] = str(path.parent / deeper["TemplateURL"])
        # The stacks of one template are distinguished by their owners.
        prefix = name.removesuffix("Alarms") if uses[stack["TemplateURL"]] > 1 else ""
        nested = Nested(template, inner, stack.get("Parameters", {}), prefix)
        del template["Resources"][name]
        for resource, content in nested.resources().items():
            if resource in template["Resources"]:
                raise ValueError(f"{path} has a second resource {resource}")
            template["Resources"][resource] = content
        template.setdefault("Conditions", {}).update(nested.kept)
        outputs |= {f"{name}.Outputs.{key}": value for key, value in nested.outputs().items()}
    return with_outputs(template, outputs)


class Nested:
    """A nested template with the parameter values of the outer one."""

    def __init__(self, outer, inner, given, prefix):
        self.outer, self.inner, self.prefix = outer, inner, prefix
        parameters = inner.get("Parameters", {})
        if unknown := given.keys() - parameters.keys():
            raise ValueError(f"the nested template has no parameters {sorted(unknown)}")
        self.given = {name: given[name] if name in given else p["Default"] for name, p in parameters.items()}
        # The conditions that depend on a parameter of the outer template.
        self.kept = {}

    def resources(self):
        return {self.prefix + name: self.put(content) for name, content in self.inner["Resources"].items()}

    def outputs(self):
        return {name: self.put(output["Value"]) for name, output in self.inner.get("Outputs", {}).items()}

    def put(self, value):
        """Returns a value in terms of the outer template."""
        match value:
            case {"Ref": name}:
                return self.ref(name)
            case {"Fn::Sub": str() as pattern}:
                text = re.sub(r"\$\{([^}!]+)\}", lambda found: self.placeholder(found[1]), pattern)
                return {"Fn::Sub": text} if "${" in text else text
            case {"Fn::GetAtt": [resource, attribute]}:
                return {"Fn::GetAtt": [self.prefix + resource, attribute]}
            case {"Fn::If": [condition, then, otherwise]}:
                match self.decide(condition):
                    case None:
                        return {"Fn::If": [condition, self.put(then), self.put(otherwise)]}
                    case decided:
                        return self.put(then if decided else otherwise)
            case dict():
                return {key: self.put(member) for key, member in value.items()}
            case list():
                members = [(member, self.put(member)) for member in value]
                return [put for member, put in members if put != NO_VALUE or member == NO_VALUE]
        return value

    def ref(self, name):
        if name in self.given:
            return self.given[name]
        if name in self.inner["Resources"]:
            return {"Ref": self.prefix + name}
        if name in OF_ONE_STACK:
            raise ValueError(f"{name} in a nested template differs from {name} in the outer template")
        return {"Ref": name}

    def placeholder(self, name):
        match self.ref(name):
            case {"Ref": known}:
                return "${%s}" % known
            case {"Fn::GetAtt": [resource, attribute]}:
                return "${%s.%s}" % (resource, attribute)
            case text:
                return str(text)

    def decide(self, condition):
        """Returns whether a condition is true; `None` if a parameter of the outer template decides it."""
        content = self.inner["Conditions"][condition]
        match self.truth(content):
            case None:
                kept = self.put(content)
                if self.outer.get("Conditions", {}).get(condition, kept) != kept:
                    raise ValueError(f"two conditions are called {condition}")
                self.kept[condition] = kept
                return None
            case decided:
                return decided

    def truth(self, content):
        match content:
            case {"Fn::Not": [inner]}:
                decided = self.truth(inner)
                return None if decided is None else not decided
            case {"Fn::Equals": [left, right]}:
                left, right = self.put(left), self.put(right)
                if isinstance(left, str) and isinstance(right, str):
                    return left == right
                # The name of a resource is never empty.
                if left == {"Ref": left.get("Ref")} and left["Ref"] in self.outer["Resources"] and right == "":
                    return False
                return None
        raise ValueError(f"cannot decide {content}")


def with_outputs(value, outputs):
    """Returns a value in which references to outputs of nested stacks are replaced by the outputs."""
    match value:
        case {"Fn::GetAtt": path}:
            name = path if isinstance(path, str) else ".".join(path)
            return outputs.get(name, value)
        case {"Fn::Sub": str() as pattern}:
            named = lambda found: "${%s}" % outputs[found[1]]["Ref"] if found[1] in outputs else found[0]
            return {"Fn::Sub": re.sub(r"\$\{([^}!]+)\}", named, pattern)}
        case dict():
            return {key: with_outputs(member, outputs) for key, member in value.items()}
        case list():
            return [with_outputs(member, outputs) for member in value]
    return value
