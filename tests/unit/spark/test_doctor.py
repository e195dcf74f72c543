"""The static checks: what is refused, and with which setting to change."""

import json
from pathlib import Path

import pytest

from tests.support.cli import tidelog
from tests.unit.spark.spark_home import fake_spark
from tidelog.spark.plugin.check_result import CheckResult
from tidelog.spark.plugin.doctor import check_installation, check_settings, hadoop_version
from tidelog.spark.plugin.settings import settings
from tidelog.spark.plugin.toolchain import Spark

STREAMING = "spark.sql.streaming."
STORE = STREAMING + "stateStore."
GOOD = settings(jar="/jars/tidelog.jar")


def failures(results: list[CheckResult]) -> dict[str, str]:
    """Failed checks and what to do."""
    return {f.check: f.action or "" for f in results if f.verdict == "fail"}


def warnings(results: list[CheckResult]) -> dict[str, str]:
    return {f.check: f.action or "" for f in results if f.verdict == "warn"}


def spark_with(home: Path, hadoop: str) -> Spark:
    fake_spark(home)
    (home / "jars" / f"hadoop-client-api-{hadoop}.jar").touch()
    return Spark(home, "4.3.0", "2.13.18")


def test_our_own_settings_pass_everything() -> None:
    assert {result.verdict for result in check_settings(GOOD, "/checkpoints/a")} == {"ok"}


@pytest.mark.parametrize(
    ("check", "setting", "value", "change"),
    [
        ("format", STORE + "checkpointFormatVersion", "1", "=2"),
        ("format", STORE + "checkpointFormatVersion", None, "=2"),
        ("changelog", STORE + "rocksdb.changelogCheckpointing.enabled", "false", "=true"),
        ("changelog", STORE + "rocksdb.changelogCheckpointing.enabled", None, "=true"),
        ("provider", STORE + "providerClass", "org.example.Mine", "RocksDBStateStoreProvider"),
        ("provider", STORE + "providerClass", None, "RocksDBStateStoreProvider"),
        ("file-manager", STREAMING + "checkpointFileManagerClass", None, "tidelog.spark."),
        ("file-manager", STREAMING + "checkpointFileManagerClass", "org.example.Put", "tidelog."),
        ("plugin", "spark.plugins", "org.example.Other", "add tidelog.spark.TidelogPlugin"),
        ("plugin", "spark.plugins", None, "add tidelog.spark.TidelogPlugin"),
    ],
)
def test_a_setting_that_breaks_the_guarantees_is_refused_by_name(
    check: str, setting: str, value: str | None, change: str
) -> None:
    conf = {key: text for key, text in GOOD.items() if key != setting}
    if value is not None:
        conf[setting] = value
    failed = failures(check_settings(conf))
    assert set(failed) == {check}
    assert setting in failed[check] and change in failed[check]


def test_other_plugins_beside_ours_are_fine() -> None:
    conf = {**GOOD, "spark.plugins": "a.B, tidelog.spark.TidelogPlugin"}
    assert failures(check_settings(conf)) == {}


def test_speculation_is_refused_only_without_format_2() -> None:
    assert failures(check_settings({**GOOD, "spark.speculation": "true"})) == {}
    conf = {**GOOD, "spark.speculation": "true", STORE + "checkpointFormatVersion": "1"}
    failed = failures(check_settings(conf))
    assert set(failed) == {"format", "speculation"}
    assert STORE + "checkpointFormatVersion=2" in failed["speculation"]


def test_a_missing_jar_is_only_doubtful() -> None:
    conf = {key: value for key, value in GOOD.items() if key != "spark.jars"}
    assert set(warnings(check_settings(conf))) == {"jar"}
    on_class_path = {**conf, "spark.driver.extraClassPath": "/opt/tidelog-spark.jar"}
    assert warnings(check_settings(on_class_path)) == {}


def test_wrong_options_of_ours_are_refused_and_unknown_ones_doubted() -> None:
    wrong = check_settings({**GOOD, "spark.tidelog.segment.bytes": "much"})
    assert "options" in failures(wrong)
    together = check_settings({**GOOD, "spark.tidelog.inFlight.bytes": "1m"})
    assert "options" in failures(together)
    unknown = check_settings({**GOOD, "spark.tidelog.segmentBytes": "1m"})
    assert failures(unknown) == {}
    assert "options" in warnings(unknown)


@pytest.mark.parametrize(
    "url",
    ["/a", "file:/a", "file:///a", "hdfs://name/a", "abfss://c@a/x", "gs://bucket/a"],
)
def test_file_systems_that_rename_atomically_pass(url: str) -> None:
    assert failures(check_settings(GOOD, url)) == {}
    assert warnings(check_settings(GOOD, url)) == {}


@pytest.mark.parametrize("url", ["s3://bucket/a", "s3n://bucket/a", "wasbs://c@a/x"])
def test_file_systems_that_rename_by_copy_are_refused(url: str) -> None:
    assert "file-system" in failures(check_settings(GOOD, url))


def test_a_file_system_nobody_vouched_for_is_doubtful() -> None:
    assert "file-system" in warnings(check_settings(GOOD, "dbfs:/a"))


@pytest.mark.parametrize(("hadoop", "passes"), [("3.4.1", False), ("3.4.2", True), ("3.5.0", True)])
def test_s3a_needs_conditional_writes_of_hadoop(hadoop: str, passes: bool, tmp_path: Path) -> None:
    results = check_settings(GOOD, "s3a://bucket/a", spark_with(tmp_path / "spark", hadoop))
    assert (failures(results) == {}) is passes
    if not passes:
        assert "3.4.2" in failures(results)["file-system"]
    assert f"hadoop-aws:{hadoop}" in warnings(results)["hadoop-aws"]


def test_s3a_with_hadoop_aws_at_hand_passes(tmp_path: Path) -> None:
    conf = {**GOOD, "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}
    results = check_settings(conf, "s3a://bucket/a", spark_with(tmp_path / "spark", "3.5.0"))
    assert {f.verdict for f in results} == {"ok"}


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        ("spark.tidelog.put.schemes", "", "add s3a to spark.tidelog.put.schemes"),
        ("spark.hadoop.fs.s3a.create.conditional.enabled", "false", "enabled=true"),
    ],
)
def test_s3a_without_conditional_puts_is_refused(key: str, value: str, change: str) -> None:
    failed = failures(check_settings({**GOOD, key: value}, "s3a://bucket/a"))
    assert change in failed["file-system"]


@pytest.mark.parametrize("scheme", ["file", "hdfs", "gs"])
def test_plain_puts_without_an_atomic_create_are_refused(scheme: str) -> None:
    conf = {**GOOD, "spark.tidelog.put.schemes": f"s3a,{scheme}"}
    failed = failures(check_settings(conf, f"{scheme}://x/a"))
    assert f"take {scheme} out of" in failed["put-schemes"]


def test_a_local_directory_of_several_machines_is_doubtful() -> None:
    conf = {**GOOD, "spark.master": "spark://host:7077"}
    assert "mount" in warnings(check_settings(conf, "/a"))["file-system"]
    local = {**GOOD, "spark.master": "local[4]"}
    assert warnings(check_settings(local, "/a")) == {}


def test_a_path_without_scheme_lies_on_the_default_file_system() -> None:
    conf = {**GOOD, "spark.hadoop.fs.defaultFS": "s3://bucket"}
    assert "file-system" in failures(check_settings(conf, "/a"))


def test_an_unsupported_spark_and_a_missing_java_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    results, spark = check_installation(fake_spark(tmp_path / "spark", "4.0.0"))
    assert spark is None
    assert set(failures(results)) == {"spark", "java"}
    assert "openjdk" in failures(results)["java"]


def test_the_hadoop_version_is_that_of_the_client_jar() -> None:
    assert hadoop_version(["a.jar", "hadoop-client-api-3.4.2-vendor-1.jar"]) == (3, 4, 2)
    assert hadoop_version([]) is None


def test_the_command_takes_given_settings_as_complete() -> None:
    result = tidelog("spark", "doctor", "--conf", "spark.plugins=a.B", "--json")
    document = json.loads(result.stdout)
    failed = {f["check"] for f in document["findings"] if f["verdict"] == "fail"}
    assert {"plugin", "file-manager", "provider", "changelog", "format"} <= failed
    assert document["passed"] is False
    assert result.exit_code == 1


def test_the_command_reads_a_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "spark-defaults.conf"
    path.write_text("\n".join(f"{key}  {value}" for key, value in GOOD.items()))
    result = tidelog(
        *("spark", "doctor", "--properties-file", path),
        *("--conf", STORE + "checkpointFormatVersion=1", "--json"),
    )
    failed = {f["check"] for f in json.loads(result.stdout)["findings"] if f["verdict"] == "fail"}
    assert "format" in failed
    assert not failed & {"plugin", "provider", "changelog", "file-manager"}


def test_a_properties_file_that_is_missing_is_wrong_usage(tmp_path: Path) -> None:
    result = tidelog("spark", "doctor", "--properties-file", tmp_path / "typo")
    assert result.exit_code == 2
    assert "--properties-file" in result.stderr
