"""Checks the expansions of template.yaml and of the templates of `weir init`; prints `N passed, N failed`."""

import json
import re
import shlex
import sys
import tomllib
import unittest

from expansion import ROOT, TEMPLATE, Names, as_list, expand, role_of, statements

STREAM_RETENTION_SECONDS = 86_400
VERSION_DESCRIPTION_LENGTH = 256
# The only service whose actions have no resources.
NO_RESOURCES = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}
# The age of a record bounds the retries, not their number: fast failures would use up any number within minutes of an
# incident, and healthy records would be discarded. The functions quarantine most records that no retry can help.
RETRIES_WITHOUT_END = -1
ALARMS = ["Errors", "Throttles", "Lag", "Refused", "GivenUp"]
GIVEN_UP = ["OnFailureDestinationDeliveredEventCount", "DroppedEventCount"]
# A function that no stream invokes has no lag and discards nothing; one with a reserved concurrency of one is
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

    def assert_kept(self, name):
        # A failed creation must delete what it created: a table with a fixed name would block the next attempt.
        self.assertEqual(self.resources[name]["DeletionPolicy"], "RetainExceptOnCreate")
        self.assertEqual(self.resources[name]["UpdateReplacePolicy"], "Retain")

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
                # A pattern only at the end, after a name: objects below a prefix, streams of a table.
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
                self.assertEqual(mapping["MaximumRetryAttempts"], RETRIES_WITHOUT_END)
                self.assertIn(mapping["MaximumRecordAgeInSeconds"], range(60, STREAM_RETENTION_SECONDS))
                self.assertEqual(mapping["StartingPosition"], "TRIM_HORIZON")
                self.assertEqual(mapping["MetricsConfig"], {"Metrics": ["EventCount"]})
                destination = self.names.text(mapping["DestinationConfig"]["OnFailure"]["Destination"])
                self.assertEqual(destination, "arn:aws:s3:::failures-bucket")

    def test_at_most_two_mappings_read_one_stream_for_good(self):
        # Migrations are temporary: a parameter enables their mappings, which no deployment sets.
        mappings = self.of_type("AWS::Lambda::EventSourceMapping").values()
        lasting = [m for m in mappings if m.get("Enabled", True) is True]
        [passing] = [m for m in mappings if m not in lasting]
        self.assertEqual(passing["Enabled"], {"Fn::If": ["FollowsMovies", True, False]})
        condition = self.template["Conditions"]["FollowsMovies"]
        self.assertEqual(condition, {"Fn::Equals": [{"Ref": "MigrateMovies"}, "true"]})
        config = tomllib.loads((ROOT / "samconfig.toml").read_text())
        for environment in (table for table in config.values() if isinstance(table, dict)):
            given = shlex.split(environment["deploy"]["parameters"]["parameter_overrides"])
            self.assertIn("MigrateMovies=false", given)
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

    def test_every_mapping_that_gives_records_up_raises_an_alarm_and_is_shown(self):
        alarms = self.of_type("AWS::CloudWatch::Alarm")
        [dashboard] = self.of_type("AWS::CloudWatch::Dashboard").values()
        for name, mapping in self.of_type("AWS::Lambda::EventSourceMapping").items():
            [function] = [f for f in self.functions() if f'"{f}Aliaslive"' in json.dumps(mapping["FunctionName"])]
            watched = [
                (metric["MetricName"], dimension["Value"])
                for metric in metrics(alarms[function.removesuffix("Function") + "GivenUpAlarm"])
                for dimension in metric["Dimensions"]
            ]
            for metric in GIVEN_UP:
                self.assertIn((metric, {"Ref": name}), watched)
                shown = '"%s", "EventSourceMappingUUID", "${%s}"' % (metric, name)
                self.assertTrue(shown in dashboard["DashboardBody"]["Fn::Sub"], shown)

    def test_new_versions_are_tried_first_and_taken_back_on_an_alarm_of_their_own(self):
        groups = self.of_type("AWS::CodeDeploy::DeploymentGroup")
        for function in self.functions():
            alias = self.resources[f"{function}Aliaslive"]
            self.assertIn("CodeDeployLambdaAliasUpdate", alias["UpdatePolicy"])
            group = groups[f"{function}DeploymentGroup"]
            alarms = [alarm["Name"]["Ref"] for alarm in group["AlarmConfiguration"]["Alarms"]]
            self.assertEqual(alarms, [f"{function.removesuffix('Function')}DeploymentErrorsAlarm"])
            # On the function it would count errors of the replaced version too, and roll back the version that corrects them.
            [metric] = metrics(self.resources[alarms[0]]["Properties"])
            self.assertEqual(metric["MetricName"], "Errors")
            subject = {d["Name"]: d["Value"] for d in metric["Dimensions"]}
            self.assertEqual(subject, {
                "FunctionName": {"Ref": function},
                "Resource": {"Fn::Sub": "${%s}:live" % function},
                "ExecutedVersion": alias["Properties"]["FunctionVersion"],
            })
            self.assertIs(group["AutoRollbackConfiguration"]["Enabled"], True)
            config = json.dumps(group["DeploymentConfigName"])
            self.assertIn("IsProd", config)
            self.assertIn("Canary10Percent5Minutes", config)
            self.assertIn("AllAtOnce", config)

    def test_a_changed_parameter_makes_a_new_version(self):
        # SAM names a version by a hash in which parameters are names, so a parameter's value changes the version only
        # through its description. Values that do not change the function must not be there: Lambda publishes no
        # version that equals the last one.
        versions = self.of_type("AWS::Lambda::Version").values()
        for function, properties in self.functions().items():
            of_function = [properties.get(name) for name in ("Environment", "MemorySize", "Timeout")]
            [version] = [version for version in versions if version["FunctionName"] == {"Ref": function}]
            description = version.get("Description", {})
            told, meant = (parameters_in(self.template, value) for value in (description, of_function))
            self.assertEqual(told, meant, function)
            self.assertLessEqual(self.length_at_most(description), VERSION_DESCRIPTION_LENGTH, function)

    def length_at_most(self, description):
        """Returns the length of a description with the longest values of its parameters."""
        pattern = description.get("Fn::Sub", "")
        longest = {}
        for name in re.findall(r"\$\{(\w+)\}", pattern):
            parameter = self.template["Parameters"][name]
            longest[name] = parameter.get("MaxLength", len(str(parameter.get("MaxValue", ""))))
            self.assertTrue(longest[name], f"{name} has no limit")
        return len(re.sub(r"\$\{(\w+)\}", lambda found: "x" * longest[found[1]], pattern))

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
            self.assert_kept(name)
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
            self.assert_kept(name)
            self.assertEqual(table["DeletionProtectionEnabled"]["Fn::If"][0], "IsProd")

    def test_a_key_of_the_customer_encrypts_all_data_and_every_function_may_use_it(self):
        key, none = {"Ref": "KmsKeyArn"}, {"Ref": "AWS::NoValue"}
        with_key = lambda value: {"Fn::If": ["HasKmsKey", value, none]}
        for name, table in self.of_type("AWS::DynamoDB::Table").items():
            self.assertEqual(table["SSESpecification"]["SSEType"], with_key("KMS"), name)
            self.assertEqual(table["SSESpecification"]["KMSMasterKeyId"], with_key(key), name)
        for name, bucket in self.of_type("AWS::S3::Bucket").items():
            [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
            default = rule["ServerSideEncryptionByDefault"]
            self.assertEqual(default["SSEAlgorithm"], {"Fn::If": ["HasKmsKey", "aws:kms", "AES256"]}, name)
            self.assertEqual(default["KMSMasterKeyID"], with_key(key), name)
        policy = self.resources["KeyPolicy"]
        self.assertEqual(policy["Condition"], "HasKmsKey")
        roles = {role_of(self.template, function) for function in self.functions()}
        self.assertEqual({role["Ref"] for role in policy["Properties"]["Roles"]}, roles)
        [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
        self.assertEqual(statement["Resource"], key)
        self.assertEqual(set(statement["Action"]), {"kms:Decrypt", "kms:GenerateDataKey"})
        services = [self.names.text(service) for service in statement["Condition"]["StringEquals"]["kms:ViaService"]]
        self.assertEqual(services, ["dynamodb.us-east-1.amazonaws.com", "s3.us-east-1.amazonaws.com"])

    def test_the_dashboard_is_json_and_names_every_function(self):
        [dashboard] = self.of_type("AWS::CloudWatch::Dashboard").values()
        body = dashboard["DashboardBody"]["Fn::Sub"]
        self.assertTrue(json.loads(body)["widgets"])
        for function in self.functions():
            self.assertIn("${%s}" % function, body)

    def test_the_dashboard_shows_what_functions_write(self):
        source = (ROOT / "functions/processor/src/metrics.rs").read_text()
        written = set(re.findall(r'(?:count|milliseconds)\("(\w+)"', source))
        [dashboard] = self.of_type("AWS::CloudWatch::Dashboard").values()
        widgets = json.loads(dashboard["DashboardBody"]["Fn::Sub"])["widgets"]
        places = {(widget["x"], widget["y"]) for widget in widgets}
        self.assertEqual(len(places), len(widgets), "no widget lies on another")
        shown = set()
        for widget in widgets:
            for namespace, metric, dimension, subject, _ in widget["properties"]["metrics"]:
                if namespace == "Weir":
                    self.assertIn(metric, written)
                    self.assertEqual(dimension, "FunctionName")
                    shown.add((metric, subject))
        followers = [function for function in self.functions() if self.has_mapping(function)]
        for metric, functions in {
            "RecordsApplied": followers, "RecordsRefused": followers,
            "TotalsDamaged": ["CountersFunction"], "CopiesRepaired": ["FanOutFunction"],
            "HoursPostponed": ["ArchiveMaintenanceFunction"], "CompactionDuration": ["ArchiveMaintenanceFunction"],
        }.items():
            for function in functions:
                self.assertIn((metric, "${%s}" % function), shown)

    def test_every_parameter_is_described_and_limited(self):
        for name, parameter in self.template["Parameters"].items():
            self.assertIn("Description", parameter, name)
            limits = {"AllowedPattern", "AllowedValues", "MinValue"} & parameter.keys()
            self.assertTrue(limits, name)

    def test_a_compaction_that_leaves_something_is_told(self):
        for alarm, metric in {"Incomplete": "CompactionsIncomplete", "Postponed": "HoursPostponed"}.items():
            alarm = self.resources[f"ArchiveMaintenance{alarm}Alarm"]["Properties"]
            self.assertEqual((alarm["MetricName"], alarm["Threshold"]), (metric, 1))
            self.assertEqual(alarm["AlarmActions"]["Fn::If"][0], "HasAlarmTopic")

    def test_reconciliations_come_as_often_as_their_alarm_looks(self):
        alarm = self.resources["CountersIncompleteAlarm"]["Properties"]
        self.assertEqual((alarm["Period"], alarm["EvaluationPeriods"]), (3_600, 3))
        schedule = self.template["Parameters"]["ReconcileSchedule"]
        for given, taken in {
            "rate(1 minute)": True, "rate(2 minutes)": True, "rate(59 minutes)": True, "rate(1 hour)": True,
            "rate(1 minutes)": False, "rate(0 minutes)": False, "rate(60 minutes)": False, "rate(2 hours)": False,
            "rate(1 day)": False, "cron(0 * * * ? *)": False, "": False,
        }.items():
            self.assertIs(bool(re.fullmatch(schedule["AllowedPattern"], given)), taken, given)
        self.assertRegex(schedule["Default"], schedule["AllowedPattern"])

    def test_the_guide_counts_what_stands_always(self):
        alarms = self.of_type("AWS::CloudWatch::Alarm").values()
        counts = {
            "alarms": f"{len(alarms)} alarms with {sum(len(metrics(alarm)) for alarm in alarms)} metrics",
            "mappings": f"of {len(self.of_type('AWS::Lambda::EventSourceMapping'))} event source mappings",
            "tables": f"| {len(self.of_type('AWS::DynamoDB::Table'))} on demand",
        }
        guide = (ROOT / "docs" / "deploy.md").read_text()
        for what, count in counts.items():
            self.assertIn(count, guide, what)

    def test_the_outputs_name_what_each_function_is_invoked_by(self):
        values = [output["Value"] for output in self.template["Outputs"].values()]
        for function in self.functions():
            self.assertIn({"Ref": f"{function}Aliaslive"}, values)

    def test_samconfig_builds_all_sources_and_gives_parameters_that_are_taken(self):
        config = tomllib.loads((ROOT / "samconfig.toml").read_text())
        environments = [table for table in config.values() if isinstance(table, dict)]
        self.assertTrue(environments)
        for environment in environments:
            # SAM detects changes below CodeUri only, and most of a function's sources are elsewhere.
            self.assertNotIn("cached", environment["build"]["parameters"])
            # CloudFormation nests stacks in a template with a transform only with this capability.
            self.assertIn("CAPABILITY_AUTO_EXPAND", environment["deploy"]["parameters"]["capabilities"].split())
            for pair in shlex.split(environment["deploy"]["parameters"]["parameter_overrides"]):
                name, value = pair.split("=", 1)
                parameter = self.template["Parameters"][name]
                self.assertRegex(value, f"^(?:{parameter.get('AllowedPattern', '.*')})$")
                self.assertIn(value, parameter.get("AllowedValues", [value]))
                if parameter["Type"] == "Number":
                    self.assertIn(int(value), range(parameter["MinValue"], parameter["MaxValue"] + 1), name)


class Projects(unittest.TestCase):
    def test_each_function_may_write_what_is_given_up(self):
        # Those of data models have no function.
        paths = sorted(path for path in (ROOT / "target/init-projects").glob("*/template.yaml") if not path.parent.name.startswith("model-"))
        self.assertGreaterEqual(len(paths), 8)
        for path in paths:
            template = expand(path)
            names = Names(template)
            mappings = [r for r in template["Resources"].values() if r["Type"] == "AWS::Lambda::EventSourceMapping"]
            self.assertTrue(mappings, path)
            for mapping in (mapping["Properties"] for mapping in mappings):
                destination = names.text(mapping["DestinationConfig"]["OnFailure"]["Destination"])
                role = role_of(template, mapping["FunctionName"]["Ref"])
                written = [s for s in statements(template, role) if "s3:PutObject" in as_list(s["Action"])]
                objects = [names.text(resource) for s in written for resource in as_list(s["Resource"])]
                self.assertIn(f"{destination}/*", objects, path)


def parameters_in(template, value):
    """Returns the parameters that a value refers to, also by the name of a resource."""
    match value:
        case {"Ref": name}:
            return parameters_of(template, name)
        case {"Fn::GetAtt": path}:
            return parameters_of(template, path[0] if isinstance(path, list) else path.split(".")[0])
        case {"Fn::Sub": str() as pattern}:
            named = [name.split(".")[0] for name in re.findall(r"\$\{([^}!]+)\}", pattern)]
            return set().union(*(parameters_of(template, name) for name in named))
        case dict():
            return set().union(*(parameters_in(template, member) for member in value.values()))
        case list():
            return set().union(*(parameters_in(template, member) for member in value))
    return set()


def parameters_of(template, name):
    """Returns a parameter itself, or those in a resource's name."""
    if name in template["Parameters"]:
        return {name}
    properties = template["Resources"].get(name, {}).get("Properties", {})
    return parameters_in(template, [properties.get(key) for key in ("TableName", "BucketName")])


def metrics(alarm):
    """Returns every metric of an alarm, with its name and dimensions."""
    return [m["MetricStat"]["Metric"] for m in alarm.get("Metrics", []) if "MetricStat" in m] or [alarm]


def dimensions(alarm):
    """Returns the dimensions of every metric of an alarm."""
    return [dimension for metric in metrics(alarm) for dimension in metric["Dimensions"]]


if __name__ == "__main__":
    failed = 0
    for name, case in ((TEMPLATE.name, Expansion), ("projects of weir init", Projects)):
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
        result = unittest.TextTestRunner(verbosity=0).run(suite)
        wrong = len(result.failures) + len(result.errors)
        print(f"{name}: {max(0, result.testsRun - wrong)} passed, {wrong} failed")
        failed += wrong
    sys.exit(bool(failed))
