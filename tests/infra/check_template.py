"""What must hold in the expansion of template.yaml; prints `N passed, N failed`."""

import json
import sys
import unittest

from expansion import TEMPLATE, Names, as_list, expand, role_of, statements

STREAM_RETENTION_SECONDS = 86_400
# The one service whose actions have no resources to name.
NO_RESOURCES = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}
DEPLOYMENT_ALARMS = ["Errors", "Throttles", "Lag"]
ALARMS = [*DEPLOYMENT_ALARMS, "Refused", "GivenUp"]
# A function that no stream invokes has no lag and gives nothing up; one that runs alone on purpose is
# throttled while it runs.
ALARMS_WITHOUT_MAPPING = ["Errors"]


class Expansion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.template = expand()
        cls.resources = cls.template["Resources"]
        cls.names = Names(cls.template)

    def of_type(self, kind):
        found = {name: r["Properties"] for name, r in self.resources.items() if r["Type"] == kind}
        self.assertTrue(found, f"no {kind}")
        return found

    def functions(self):
        return self.of_type("AWS::Lambda::Function")

    def has_mapping(self, function):
        mappings = self.of_type("AWS::Lambda::EventSourceMapping").values()
        return any(function in json.dumps(mapping["FunctionName"]) for mapping in mappings)

    def allowed(self):
        for role in self.of_type("AWS::IAM::Role"):
            for statement in statements(self.template, role):
                if statement["Effect"] == "Allow":
                    yield role, statement

    def test_every_function_has_a_role_of_its_own(self):
        roles = [role_of(self.template, function) for function in self.functions()]
        self.assertEqual(len(roles), len(set(roles)), roles)

    def test_no_role_of_a_function_has_a_managed_policy(self):
        for function in self.functions():
            role = self.resources[role_of(self.template, function)]["Properties"]
            self.assertNotIn("ManagedPolicyArns", role, function)

    def test_only_lambda_may_take_a_functions_role(self):
        for function in self.functions():
            role = self.resources[role_of(self.template, function)]["Properties"]
            for statement in role["AssumeRolePolicyDocument"]["Statement"]:
                self.assertEqual(statement["Principal"], {"Service": "lambda.amazonaws.com"})

    def test_no_statement_allows_a_pattern_of_actions(self):
        for role, statement in self.allowed():
            self.assertNotIn("NotAction", statement)
            for action in as_list(statement["Action"]):
                self.assertNotIn("*", action, role)

    def test_every_resource_but_that_of_xray_is_named(self):
        for role, statement in self.allowed():
            self.assertNotIn("NotResource", statement)
            resources = [self.names.text(resource) for resource in as_list(statement["Resource"])]
            if resources == ["*"]:
                self.assertLessEqual(set(as_list(statement["Action"])), NO_RESOURCES, role)
                continue
            for resource in resources:
                head, service = resource.split(":", 3)[:3][0], resource.split(":")[2]
                self.assertEqual(head, "arn")
                # A pattern only at the end, behind a name: objects below a prefix, streams of a table.
                self.assertNotIn("*", resource.removesuffix("*"), role)
                if service == "s3" and resource.endswith("*"):
                    self.assertRegex(resource, r"^arn:aws:s3:::[a-z-]+/[a-z/-]+/\*$")
                if service == "dynamodb" and resource.endswith("*"):
                    self.assertRegex(resource, r":table/[a-z-]+/stream/\*$")

    def test_one_statement_for_each_resource(self):
        for role in self.of_type("AWS::IAM::Role"):
            seen = []
            for statement in statements(self.template, role):
                self.assertIn("Sid", statement)
                seen += [json.dumps(resource) for resource in as_list(statement["Resource"])]
            self.assertEqual(len(seen), len(set(seen)), role)

    def test_every_mapping_gives_up_in_time_and_loses_nothing(self):
        for name, mapping in self.of_type("AWS::Lambda::EventSourceMapping").items():
            with self.subTest(name):
                self.assertEqual(mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])
                self.assertIs(mapping["BisectBatchOnFunctionError"], True)
                self.assertIn(mapping["MaximumRetryAttempts"], range(1, 1_000))
                self.assertIn(mapping["MaximumRecordAgeInSeconds"], range(60, STREAM_RETENTION_SECONDS))
                self.assertEqual(mapping["StartingPosition"], "TRIM_HORIZON")
                self.assertEqual(mapping["MetricsConfig"], {"Metrics": ["EventCount"]})
                destination = self.names.text(mapping["DestinationConfig"]["OnFailure"]["Destination"])
                self.assertEqual(destination, "arn:aws:s3:::failures-bucket")

    def test_at_most_two_mappings_read_one_stream_for_good(self):
        # A migration is over one day; its mapping is a third reader until it is taken out.
        mappings = self.of_type("AWS::Lambda::EventSourceMapping").values()
        lasting = [m for m in mappings if "MigrationFunction" not in json.dumps(m["FunctionName"])]
        self.assertLess(len(lasting), len(mappings))
        streams = [json.dumps(m["EventSourceArn"]) for m in lasting]
        for stream in streams:
            self.assertLessEqual(streams.count(stream), 2)

    def test_every_function_has_json_logs_that_are_kept_for_a_time(self):
        groups = self.of_type("AWS::Logs::LogGroup")
        for function, properties in self.functions().items():
            logging = properties["LoggingConfig"]
            self.assertEqual((logging["LogFormat"], logging["ApplicationLogLevel"]), ("JSON", "INFO"))
            self.assertIn("RetentionInDays", groups[logging["LogGroup"]["Ref"]], function)

    def test_every_function_has_its_alarms(self):
        alarms = self.of_type("AWS::CloudWatch::Alarm")
        for function in self.functions():
            for kind in ALARMS if self.has_mapping(function) else ALARMS_WITHOUT_MAPPING:
                alarm = alarms[function.removesuffix("Function") + kind + "Alarm"]
                self.assertIn("AlarmDescription", alarm)
                self.assertEqual(alarm["TreatMissingData"], "notBreaching")
                self.assertEqual(alarm["AlarmActions"]["Fn::If"][0], "HasAlarmTopic")
                subjects = {d["Value"]["Ref"] for d in dimensions(alarm)}
                self.assertTrue(all(s.startswith(function) for s in subjects) and subjects, subjects)

    def test_new_versions_are_tried_first_and_taken_back_on_alarm(self):
        groups = self.of_type("AWS::CodeDeploy::DeploymentGroup")
        for function in self.functions():
            alias = self.resources[f"{function}Aliaslive"]
            self.assertIn("CodeDeployLambdaAliasUpdate", alias["UpdatePolicy"])
            group = groups[f"{function}DeploymentGroup"]
            alarms = [alarm["Name"]["Ref"] for alarm in group["AlarmConfiguration"]["Alarms"]]
            stem = function.removesuffix("Function")
            kinds = DEPLOYMENT_ALARMS if self.has_mapping(function) else ALARMS_WITHOUT_MAPPING
            self.assertEqual(alarms, [f"{stem}{kind}Alarm" for kind in kinds])
            self.assertIs(group["AutoRollbackConfiguration"]["Enabled"], True)
            config = json.dumps(group["DeploymentConfigName"])
            self.assertIn("IsProd", config)
            self.assertIn("Canary10Percent5Minutes", config)
            self.assertIn("AllAtOnce", config)

    def test_mappings_invoke_the_alias(self):
        for name, mapping in self.of_type("AWS::Lambda::EventSourceMapping").items():
            self.assertRegex(json.dumps(mapping["FunctionName"]), "Aliaslive", name)

    def test_buckets_are_private_encrypted_versioned_and_tls_only(self):
        policies = self.of_type("AWS::S3::BucketPolicy").values()
        for name, bucket in self.of_type("AWS::S3::Bucket").items():
            block = bucket["PublicAccessBlockConfiguration"]
            self.assertEqual(len(block), 4)
            self.assertTrue(all(value is True for value in block.values()), name)
            self.assertIn("ServerSideEncryptionByDefault", json.dumps(bucket["BucketEncryption"]))
            self.assertEqual(bucket["VersioningConfiguration"]["Status"], "Enabled")
            self.assertEqual(self.resources[name]["DeletionPolicy"], "Retain")
            [policy] = [policy for policy in policies if policy["Bucket"] == {"Ref": name}]
            [statement] = policy["PolicyDocument"]["Statement"]
            self.assertEqual((statement["Effect"], statement["Principal"], statement["Action"]), ("Deny", "*", "s3:*"))
            self.assertEqual(statement["Condition"], {"Bool": {"aws:SecureTransport": "false"}})
            self.assertEqual(len(statement["Resource"]), 2)

    def test_tables_are_encrypted_backed_up_and_kept(self):
        for name, table in self.of_type("AWS::DynamoDB::Table").items():
            recovery = table["PointInTimeRecoverySpecification"]
            self.assertIs(recovery["PointInTimeRecoveryEnabled"], True, name)
            self.assertIs(table["SSESpecification"]["SSEEnabled"], True, name)
            self.assertEqual(self.resources[name]["DeletionPolicy"], "Retain")
            self.assertEqual(table["DeletionProtectionEnabled"]["Fn::If"][0], "IsProd")

    def test_the_dashboard_is_json_and_names_every_function(self):
        [dashboard] = self.of_type("AWS::CloudWatch::Dashboard").values()
        body = dashboard["DashboardBody"]["Fn::Sub"]
        self.assertTrue(json.loads(body)["widgets"])
        for function in self.functions():
            self.assertIn("${%s}" % function, body)

    def test_every_parameter_is_described_and_limited(self):
        for name, parameter in self.template["Parameters"].items():
            self.assertIn("Description", parameter, name)
            limits = {"AllowedPattern", "AllowedValues", "MinValue"} & parameter.keys()
            self.assertTrue(limits, name)


def dimensions(alarm):
    """The dimensions of every metric of an alarm."""
    metrics = [m["MetricStat"]["Metric"] for m in alarm.get("Metrics", []) if "MetricStat" in m]
    return [dimension for metric in metrics or [alarm] for dimension in metric["Dimensions"]]


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Expansion)
    result = unittest.TextTestRunner(verbosity=0).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{TEMPLATE.name}: {max(0, result.testsRun - failed)} passed, {failed} failed")
    sys.exit(bool(failed))
