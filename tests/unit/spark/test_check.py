"""The static checks of `tidelog spark check`: what is refused, and which setting to change.

What all commands of `tidelog spark` promise: a cheap --help, documented JSON, no pyspark.
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.cli import CLI_JSON, keys, lay_out, section, tidelog, undocumented
from tests.unit.spark.spark_home import fake_spark
from tests.unit.spark.synthetic import Synthetic, roll_up_object
from tidelog.spark.plugin.check import CheckResult, check_installation, check_settings
from tidelog.spark.plugin.settings import settings
from tidelog.spark.plugin.toolchain import Spark

STREAMING = "spark.sql.streaming."
STORE = STREAMING + "stateStore."
FORMAT = STORE + "checkpointFormatVersion"
CHANGELOG = STORE + "rocksdb.changelogCheckpointing.enabled"
FILE_MANAGER = STREAMING + "checkpointFileManagerClass"
OWN = "spark.tidelog."
CONDITIONAL = "spark.hadoop.fs.s3a.create.conditional.enabled"
GOOD = settings(jar="/jars/tidelog.jar")


def actions(results: list[CheckResult], verdict: str = "fail") -> dict[str, str]:
    """What to do, by the checks with a verdict."""
    return {r.check: r.action or "" for r in results if r.verdict == verdict}


def changed(setting: str, value: str | None) -> dict[str, str]:
    """Our own settings with another value of one, or without it."""
    conf = {key: text for key, text in GOOD.items() if key != setting}
    return conf if value is None else {**conf, setting: value}


@pytest.mark.parametrize("url", [None, "/a", "file:/a", "hdfs://name/a", "abfss://c@a/x", "gs://a"])
def test_our_own_settings_pass_where_a_rename_is_atomic(url: str | None) -> None:
    assert {result.verdict for result in check_settings(GOOD, url)} == {"ok"}


@pytest.mark.parametrize(
    ("verdict", "check", "setting", "value", "url", "change"),
    [
        ("fail", "format", FORMAT, "1", None, f"{FORMAT}=2"),
        ("fail", "format", FORMAT, None, None, f"{FORMAT}=2"),
        ("fail", "changelog", CHANGELOG, "false", None, f"{CHANGELOG}=true"),
        ("fail", "changelog", CHANGELOG, None, None, f"{CHANGELOG}=true"),
        ("fail", "provider", STORE + "providerClass", "a.B", None, "RocksDBStateStoreProvider"),
        ("fail", "provider", STORE + "providerClass", None, None, STORE + "providerClass="),
        ("fail", "file-manager", FILE_MANAGER, None, None, f"{FILE_MANAGER}=tidelog.spark."),
        ("fail", "file-manager", FILE_MANAGER, "a.B", None, f"{FILE_MANAGER}=tidelog.spark."),
        ("fail", "plugin", "spark.plugins", "a.B", None, "add tidelog.spark.TidelogPlugin to"),
        ("fail", "plugin", "spark.plugins", None, None, "tidelog.spark.TidelogPlugin to spark."),
        ("warn", "jar", "spark.jars", None, None, "tidelog spark jar"),
        ("fail", "options", OWN + "segment.bytes", "much", None, "correct it"),
        ("fail", "options", OWN + "inFlight.bytes", "1m", None, "raise the first"),
        ("warn", "options", OWN + "segmentBytes", "1m", None, "correct the name"),
        ("fail", "file-system", "spark.a", "b", "s3://bucket/a", "use s3a://"),
        ("fail", "file-system", "spark.a", "b", "s3n://bucket/a", "use s3a://"),
        ("fail", "file-system", "spark.a", "b", "wasbs://c@a/x", "whose rename is atomic"),
        ("fail", "file-system", "spark.hadoop.fs.defaultFS", "s3://bucket", "/a", "use s3a://"),
        ("warn", "file-system", "spark.a", "b", "dbfs:/a", "make sure"),
        ("warn", "file-system", "spark.master", "spark://host:7077", "/a", "mount"),
        ("fail", "file-system", OWN + "put.schemes", "", "s3a://bucket/a", "add s3a to"),
        ("fail", "file-system", CONDITIONAL, "false", "s3a://bucket/a", f"{CONDITIONAL}=true"),
        ("fail", "put-schemes", OWN + "put.schemes", "s3a,gs", "gs://x/a", "take gs out of"),
        ("fail", "put-schemes", OWN + "put.schemes", "s3a,file", "file:/a", "take file out of"),
    ],
)
def test_a_setting_that_breaks_the_guarantees_is_found_with_what_to_change(
    verdict: str, check: str, setting: str, value: str | None, url: str | None, change: str
) -> None:
    results = check_settings(changed(setting, value), url)
    found = actions(results) | actions(results, "warn")
    assert set(found) == {check}
    assert change in actions(results, verdict)[check]


def test_speculation_is_refused_without_format_2() -> None:
    failed = actions(check_settings({**GOOD, "spark.speculation": "true", FORMAT: "1"}))
    assert set(failed) == {"format", "speculation"}
    assert f"{FORMAT}=2" in failed["speculation"]


@pytest.mark.parametrize(("hadoop", "passes"), [("3.4.1", False), ("3.4.2", True), ("3.5.0", True)])
def test_s3a_needs_conditional_writes_and_the_client_of_hadoop(
    hadoop: str, passes: bool, tmp_path: Path
) -> None:
    home = fake_spark(tmp_path / "spark")
    (home / "jars" / f"hadoop-client-api-{hadoop}.jar").touch()
    spark = Spark(home, "4.3.0", "2.13.18")
    results = check_settings(GOOD, "s3a://bucket/a", spark)
    assert ("file-system" not in actions(results)) is passes
    package = f"org.apache.hadoop:hadoop-aws:{hadoop}"
    assert package in actions(results, "warn")["hadoop-aws"]
    at_hand = check_settings({**GOOD, "spark.jars.packages": package}, "s3a://bucket/a", spark)
    assert actions(at_hand, "warn") == {}


def test_an_unsupported_spark_and_a_missing_java_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    results, spark = check_installation(fake_spark(tmp_path / "spark", "4.0.0"))
    assert spark is None
    assert set(actions(results)) == {"spark", "java"}
    assert "openjdk" in actions(results)["java"]


def failed_checks(*options: str | Path) -> set[str]:
    result = tidelog("spark", "check", *options, "--json")
    found = json.loads(result.stdout)
    assert (found["passed"], result.exit_code) == (False, 1)
    return {f["check"] for f in found["findings"] if f["verdict"] == "fail"}


def test_the_command_takes_given_settings_as_complete(tmp_path: Path) -> None:
    of_settings = {"plugin", "file-manager", "provider", "changelog", "format"}
    assert of_settings <= failed_checks("--conf", "spark.plugins=a.B")
    path = tmp_path / "spark-defaults.conf"
    path.write_text("\n".join(f"{key}  {value}" for key, value in GOOD.items()))
    failed = failed_checks("--properties-file", path, "--conf", f"{FORMAT}=1")
    assert failed & of_settings == {"format"}


def loaded(script: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after a script."""
    command = [sys.executable, "-c", script + "\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, check=True).stdout.decode().split())


def test_neither_tidelog_nor_its_spark_side_imports_pyspark() -> None:
    modules = loaded("import tidelog, tidelog.spark, tidelog.cli.spark.conf")
    assert not modules & {"pyspark", "py4j", "pandas", "pyarrow"}


@pytest.mark.parametrize(
    ("command", "options"),
    [("checkpoints", []), ("check", ["--deep"]), ("export", ["--dry-run", "--remove-log"])],
)
def test_every_field_is_documented(command: str, options: list[str], tmp_path: Path) -> None:
    synthetic = Synthetic(executors=1).virtual(13)
    if command != "export":  # it prints nothing but an error for a damaged checkpoint
        synthetic.without_line(12)
        synthetic.objects[roll_up_object(0)] = b"nonsense"
        synthetic.objects["commits/2"] = b"nonsense"
    result = tidelog("spark", command, lay_out(tmp_path, synthetic.objects), *options, "--json")
    errors = CLI_JSON[CLI_JSON.index("## Errors") : CLI_JSON.index("## tidelog checkpoints")]
    document = json.loads(result.stdout)
    assert len(set(keys(document))) > 3
    assert undocumented(document, errors + section(f"spark {command}")) == set()


def test_every_check_is_documented(tmp_path: Path) -> None:
    source = Path(find_spec("tidelog.spark").origin or "").parent  # type: ignore[union-attr]
    texts = [
        (source / name).read_text() for name in ("plugin/check.py", "checkpoint/inspection.py")
    ]
    pattern = r'(?:\b(?:ok|warn|fail|_class|_from_error)\(\s*|_FILE_SYSTEM: Final = )"([a-z-]+)"'
    found = {name for text in texts for name in re.findall(pattern, text)}
    assert {"plugin", "stored-provider", "put-schemes", "file-system"} <= found
    assert {name for name in found if f"`{name}`" not in section("spark check")} == set()
