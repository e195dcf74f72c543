"""The settings of the plug-in: complete, validated, added to what is there."""

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cli import tidelog
from tidelog.errors import ConfigError
from tidelog.spark import batch_report, configure
from tidelog.spark.plugin.options import OPTIONS, bytes_of, milliseconds_of
from tidelog.spark.plugin.settings import appended, read_properties, settings

STREAMING = "spark.sql.streaming."
STORE = STREAMING + "stateStore."
SERVLET = "spark.metrics.conf.driver.sink.prometheusServlet."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
OURS = "tidelog.spark.TidelogPlugin"


class Builder:
    """As much of a SparkSession.builder as `configure` uses."""

    def __init__(self, **options: str) -> None:
        self._options: dict[str, Any] = {key.replace("_", "."): v for key, v in options.items()}

    def config(self, key: str, value: str) -> "Builder":
        self._options[key] = value
        return self


def test_the_settings_turn_everything_on_and_options_come_in_sparks_notation() -> None:
    base = {
        "spark.plugins": OURS,
        "spark.jars": "/jars/tidelog.jar",
        STREAMING + "checkpointFileManagerClass": "tidelog.spark.TidelogCheckpointFileManager",
        STORE + "providerClass": ROCKSDB,
        STORE + "rocksdb.changelogCheckpointing.enabled": "true",
        STORE + "checkpointFormatVersion": "2",
    }
    assert settings(jar="/jars/tidelog.jar", segment_bytes=None) == base
    more: dict[str, Any] = {"segment_bytes": 16 << 20, "upload_threads": 8, "snapshot_every": 25}
    more |= {"snapshot_stagger": False, "barrier_timeout": "5min"}
    assert settings(jar="/jars/tidelog.jar", **more) == base | {
        "spark.tidelog.segment.bytes": str(16 << 20),
        "spark.tidelog.upload.threads": "8",
        "spark.tidelog.snapshot.stagger": "false",
        "spark.tidelog.barrier.timeout": "5min",
        STORE + "minDeltasForSnapshot": "25",
    }


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_default_is_a_value_of_its_option_and_the_one_in_scala(option: Any) -> None:
    assert settings(**{option.argument: option.default})[option.key] == option.default
    native = Path(__file__).parents[3] / "native" / "spark-state-store" / "src" / "main"
    sources = [path.read_text() for path in sorted(native.rglob("*.scala"))]
    readers = [text for text in sources if f'"{option.key}"' in text]
    assert readers, f"no source mentions {option.key}"
    after = [text.split(f'"{option.key}"', 1)[1][:200] for text in readers]
    assert any(re.search(rf"\b{re.escape(option.default)}\b", text) for text in after)


@pytest.mark.parametrize(
    ("options", "what", "message"),
    [
        *(
            ({argument: value}, f"option spark.tidelog.{name}", f"found {value!r}")
            for argument, name, values in (
                ("segment_bytes", "segment.bytes", ["0", "8 apples", -1, "8.5m"]),
                ("barrier_timeout", "barrier.timeout", ["1", "0s"]),
                ("upload_threads", "upload.threads", ["0", "four"]),
                ("upload_deadline", "upload.deadline", ["a minute"]),
                ("snapshot_stagger", "snapshot.stagger", ["yes"]),
                ("put_schemes", "put.schemes", ["s3a://"]),
            )
            for value in values
        ),
        *(
            ({"snapshot_every": value}, f"option snapshot_every ({STORE}minDeltas", "1 or more")
            for value in (0, -1, True, "10", 2.5)
        ),
        ({"segmentBytes": "8m"}, "option 'segmentBytes' of the Spark plug-in", "segment_bytes"),
        ({"in_flight_bytes": "4m"}, "option spark.tidelog.inFlight.bytes", "segment.bytes, 8m"),
        (
            {"segment_bytes": "2m", "part_bytes": "3m"},
            *("option spark.tidelog.segment.bytes", "part.bytes, 3m"),
        ),
        (
            {"barrier_timeout": "30s"},
            *("option spark.tidelog.barrier.timeout", "upload.deadline, 60s"),
        ),
        *(
            ({"jar": f"/a{character}b/tidelog.jar"}, "path of the plug-in's jar", "any of # ? [ {")
            for character in ",#?[{"
        ),
    ],
)
def test_a_wrong_value_is_refused_by_name_and_leaves_the_builder_alone(
    options: dict[str, Any], what: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        settings(**options)
    assert error.value.what.startswith(what)
    builder = Builder()
    with pytest.raises(ConfigError):
        configure(builder, **{"jar": "/t.jar", **options})
    assert builder._options == {}


@pytest.mark.parametrize(
    ("parse", "text", "amount"),
    [
        *((bytes_of, "8m", 8 << 20), (bytes_of, "1KB", 1024), (bytes_of, "512", 512)),
        *((bytes_of, "2g", 2 << 30), (bytes_of, "m", None), (milliseconds_of, "10ms", 10)),
        *((milliseconds_of, "1s", 1000), (milliseconds_of, "2min", 120_000)),
        *((milliseconds_of, "5", None), (milliseconds_of, "-1s", None)),
    ],
)
def test_sizes_and_times_are_read_as_spark_reads_them(
    parse: Any, text: str, amount: int | None
) -> None:
    assert parse(text) == amount


@pytest.mark.parametrize(
    ("options", "variable", "python"),
    [
        ({}, None, sys.executable),
        ({"spark_master": "local[4]"}, None, sys.executable),
        ({"spark_master": "spark://host:7077"}, None, None),
        ({"spark_pyspark_python": "/python"}, None, None),
        ({}, "/mine", "/mine"),
    ],
)
def test_workers_on_this_machine_run_its_interpreter_unless_another_one_is_named(
    options: dict[str, str],
    variable: str | None,
    python: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    configure(Builder(**options), jar="/t.jar")
    assert os.environ.get("PYSPARK_PYTHON") == python


def test_configure_sets_everything_once_and_returns_the_builder() -> None:
    builder = Builder()
    for _ in range(2):
        assert configure(builder, jar="/t.jar", segment_bytes="1m") is builder
        assert builder._options == settings(jar="/t.jar", segment_bytes="1m")


def test_metrics_are_exposed_on_request_alone() -> None:
    added = {
        "spark.metrics.namespace": "spark",
        SERVLET + "class": "org.apache.spark.metrics.sink.PrometheusServlet",
        SERVLET + "path": "/metrics/prometheus",
    }
    assert settings(metrics=True) == settings() | added
    builder = configure(Builder(), jar="/t.jar", metrics=True)
    assert builder._options == settings(jar="/t.jar") | added
    printed = tidelog("spark", "conf", "--no-jar", "--metrics", "--format", "json").stdout
    assert json.loads(printed) == settings() | added


def test_configure_keeps_other_plugins_and_jars_also_those_of_the_defaults_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.plugins a.B\nspark.jars /a.jar\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    builder = configure(Builder(spark_jars="/b.jar, /c.jar"), jar="/t.jar")
    assert builder._options["spark.plugins"] == f"a.B,{OURS}"
    assert builder._options["spark.jars"] == "/b.jar,/c.jar,/t.jar"
    assert [appended(before, "x") for before in (None, "a,,b ", "a,x")] == ["x", "a,b,x", "a,x"]


@pytest.mark.parametrize(
    ("options", "variable", "value"),
    [
        ({"spark_remote": "sc://server"}, None, "sc://server"),
        ({}, "SPARK_REMOTE", "sc://server"),
        ({"spark_api_mode": "connect"}, None, "connect"),
        ({}, "SPARK_API_MODE", "connect"),
    ],
)
def test_a_session_of_spark_connect_is_refused(
    options: dict[str, str], variable: str | None, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"Spark Connect, by .*={value}"):
        configure(Builder(**options), jar="/t.jar")


@pytest.mark.parametrize(
    ("plugins", "refused"), [("", True), ("org.example.Other", True), (f"a.B, {OURS}", False)]
)
def test_a_context_that_runs_without_the_plugin_is_refused(
    plugins: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    conf = SimpleNamespace(get=lambda key, default: plugins)
    context = SimpleNamespace(getConf=lambda: conf)
    running = SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=context))
    monkeypatch.setitem(sys.modules, "pyspark", running)
    if refused:
        with pytest.raises(ConfigError, match=r"spark.stop\(\)"):
            configure(Builder(), jar="/t.jar")
    else:
        configure(Builder(), jar="/t.jar")


@pytest.mark.parametrize("plugins", [OURS, f"a.B, {OURS}"])
def test_reports_come_of_a_session_that_has_the_plugin_among_others(plugins: str) -> None:
    listener = SimpleNamespace(report=lambda query, batch: None)
    of_spark = SimpleNamespace(TidelogBatchListener=listener)
    jvm = SimpleNamespace(tidelog=SimpleNamespace(spark=of_spark))
    context = SimpleNamespace(getConf=lambda: {"spark.plugins": plugins})
    session: Any = SimpleNamespace(_jvm=jvm, sparkContext=context)
    assert batch_report(session, "query", 0) is None


def test_conf_prints_lines_for_spark_defaults_that_read_back(tmp_path: Path) -> None:
    result = tidelog("spark", "conf", "--jar", "/t.jar", "--segment-bytes", "16m")
    path = tmp_path / "spark-defaults.conf"
    path.write_text("# a comment\n\n" + result.stdout)
    assert read_properties(path) == settings(jar="/t.jar", segment_bytes="16m")


def test_conf_prints_arguments_for_spark_submit_and_json() -> None:
    result = tidelog("spark", "conf", "--jar", "/with space.jar", "--format", "args")
    assert "--conf 'spark.jars=/with space.jar'" in result.stdout
    assert result.stdout.count("--conf ") == len(settings(jar="x"))
    result = tidelog("spark", "conf", "--no-jar", "--snapshot-every", "5", "--json")
    assert json.loads(result.stdout) == settings(snapshot_every=5)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        *(("a.b c d", {"a.b": "c d"}), ("a.b=c", {"a.b": "c"}), ("a.b : c=d", {"a.b": "c=d"})),
        ("a.b c,\\\n   d,\\\ne", {"a.b": "c,d,e"}),
        ("a.b c\\\\\na.c d", {"a.b": "c\\\\", "a.c": "d"}),
    ],
)
def test_properties_are_read_in_all_their_notations(
    line: str, found: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "conf"
    path.write_text(f"{line}\n")
    assert read_properties(path) == found
    path.write_text(f"{line}\na\n")
    with pytest.raises(ConfigError, match=f"line {line.count(chr(10)) + 2}"):
        read_properties(path)
