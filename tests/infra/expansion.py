"""SAM's expansion of template.yaml, without AWS, and its references as local names.

The resources of nested stacks are in the expansion as if the template itself had them.
"""

import json
import logging
import pathlib
import re

import nesting
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

# The translator warns about missing feature switches that only Amazon sets.
logging.disable(logging.WARNING)
ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "template.yaml"
REGION, ACCOUNT = "us-east-1", "000000000000"


# Replaces the lookup of AWS's managed policies, which needs an account.
MANAGED_POLICIES = {"AWSCodeDeployRoleForLambda": "arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda"}


class Region:
    """Replaces the SDK's session, of which only the region is needed."""

    region_name = REGION


def expand(path=TEMPLATE, parameters=None):
    """Returns the CloudFormation template that SAM deploys, with the resources of its nested stacks."""
    return nesting.inline(expand_sam(path, parameters), path.parent)


def expand_sam(path, parameters):
    """Returns the CloudFormation template that SAM deploys."""
    source = yaml_parse(path.read_text())
    for resource in source["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::Serverless::Function":
            # `sam package` uploads the code before the expansion.
            properties["CodeUri"] = "s3://artifacts/function"
    source.get("Globals", {}).get("Function", {}).pop("CodeUri", None)
    translator = Translator(MANAGED_POLICIES, Parser(), boto_session=Region())
    # Encoded and decoded, to get plain dictionaries and lists.
    return json.loads(json.dumps(translator.translate(source, parameters or {})))


class Names:
    """Converts references to the names and ARNs of the same resources in the local run."""

    def __init__(self, template, parameters=None):
        self.resources = template["Resources"]
        self.parameters = {name: p.get("Default") for name, p in template.get("Parameters", {}).items()}
        self.parameters |= parameters or {}
        self.pseudo = {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws", "AWS::StackName": "weir", "AWS::URLSuffix": "amazonaws.com"}

    def text(self, value):
        """Returns a string with every intrinsic function replaced."""
        match value:
            case str() | int():
                return str(value)
            case {"Ref": name}:
                return self.ref(name)
            case {"Fn::GetAtt": [resource, attribute]}:
                return self.attribute(resource, attribute)
            case {"Fn::GetAtt": str() as path}:
                return self.attribute(*path.split(".", 1))
            case {"Fn::Sub": str() as pattern}:
                return re.sub(r"\$\{([^}!]+)\}", lambda found: self.placeholder(found[1]), pattern)
            case {"Fn::Join": [separator, parts]}:
                return separator.join(self.text(part) for part in parts)
        raise ValueError(f"cannot resolve {value}")

    def placeholder(self, name):
        return self.attribute(*name.split(".", 1)) if "." in name else self.ref(name)

    def ref(self, name):
        if name in self.parameters:
            return str(self.parameters[name])
        if name in self.pseudo:
            return self.pseudo[name]
        resource = self.resources[name]
        properties = resource.get("Properties", {})
        match resource["Type"]:
            case "AWS::DynamoDB::Table":
                return self.text(properties["TableName"])
            case "AWS::S3::Bucket":
                return self.text(properties["BucketName"]) if "BucketName" in properties else kebab(name)
        return name

    def attribute(self, resource, attribute):
        name, kind = self.ref(resource), self.resources[resource]["Type"]
        match kind, attribute:
            case "AWS::DynamoDB::Table", "Arn":
                return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"
            case "AWS::DynamoDB::Table", "StreamArn":
                return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}/stream/LABEL"
            case "AWS::S3::Bucket", "Arn":
                return f"arn:aws:s3:::{name}"
            case "AWS::Logs::LogGroup", "Arn":
                return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}:*"
        return f"{kind}/{resource}/{attribute}"


def kebab(name):
    """Returns the local run's name of a resource: `archive-bucket` for `ArchiveBucket`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def as_list(value):
    return value if isinstance(value, list) else [value]


def role_of(template, function):
    """Returns the logical id of a function's role."""
    role = template["Resources"][function]["Properties"]["Role"]["Fn::GetAtt"]
    return role[0] if isinstance(role, list) else role.split(".")[0]


def statements(template, role):
    """Returns every statement of a role's own policies."""
    for policy in template["Resources"][role]["Properties"].get("Policies", []):
        yield from policy["PolicyDocument"]["Statement"]


if __name__ == "__main__":
    print(json.dumps(expand(), indent=2))
