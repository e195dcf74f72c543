"""The settings of the plug-in: complete, validated, added to what is there."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cli import tidelog
from tidelog.errors import ConfigError
from tidelog.spark import configure
from tidelog.spark.plugin.options import OPTIONS, bytes_of, milliseconds_of
from tidelog.spark.plugin.settings import appended, parse_arguments, read_properties, settings

STREAMING = "spark.sql.streaming."
STORE = STREAMING + "stateStore."
SERVLET = "spark.metrics.conf.driver.sink.prometheusServlet."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Builder:
    """As much of a SparkSession.builder as `configure` uses."""

    def __init__(self, **options: str) -> None:
        self._options: dict[str, Any] = {key.replace("_", "."): v for key, v in options.items()}

    def config(self, key: str, value: str) -> "Builder":
        self._options[key] = value
        return self


def test_the_settings_turn_everything_on() -> None:
    assert settings(jar="/jars/tidelog.jar") == {
        "spark.plugins": "tidelog.spark.TidelogPlugin",
        "spark.jars": "/jars/tidelog.jar",
        STREAMING + "checkpointFileManagerClass": "tidelog.spark.TidelogCheckpointFileManager",
        STORE + "providerClass": ROCKSDB,
        STORE + "rocksdb.changelogCheckpointing.enabled": "true",
        STORE + "checkpointFormatVersion": "2",
    }


def test_options_come_in_sparks_notation() -> None:
    given = settings(
        segment_bytes=16 << 20, upload_threads=8, snapshot_stagger=False, barrier_timeout="5min"
    )
    assert given["spark.tidelog.segment.bytes"] == str(16 << 20)
    assert given["spark.tidelog.upload.threads"] == "8"
    assert given["spark.tidelog.snapshot.stagger"] == "false"
    assert given["spark.tidelog.barrier.timeout"] == "5min"


def test_none_leaves_the_default() -> None:
    assert settings(segment_bytes=None) == settings()


def test_the_snapshot_period_is_sparks_own_setting() -> None:
    assert settings(snapshot_every=25)[STORE + "minDeltasForSnapshot"] == "25"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_default_is_a_value_of_its_option(option: Any) -> None:
    assert settings(**{option.argument: option.default})[option.key] == option.default


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("segment_bytes", "0"),
        ("segment_bytes", "8 apples"),
        ("segment_bytes", -1),
        ("segment_bytes", "8.5m"),
        ("segment_max_age", "1"),
        ("segment_max_age", "0s"),
        ("upload_threads", "0"),
        ("upload_threads", "four"),
        ("upload_deadline", "a minute"),
        ("snapshot_stagger", "yes"),
        ("put_schemes", "s3a://"),
    ],
)
def test_a_wrong_value_is_refused_by_name(argument: str, value: object) -> None:
    with pytest.raises(ConfigError) as error:
        settings(**{argument: value})  # type: ignore[arg-type]
    key = next(option.key for option in OPTIONS if option.argument == argument)
    assert error.value.what == f"option {key}"
    assert error.value.found == repr(value)


@pytest.mark.parametrize("period", [0, -1, True, "10", 2.5])
def test_a_wrong_snapshot_period_is_refused(period: object) -> None:
    with pytest.raises(ConfigError, match="snapshot_every"):
        settings(snapshot_every=period)  # type: ignore[arg-type]


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="segment_bytes") as error:
        settings(segmentBytes="8m")
    assert "segmentBytes" in error.value.what


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"in_flight_bytes": "4m"}, ("inFlight.bytes", "segment.bytes, 8m")),
        (
            {"in_flight_bytes": "8m", "changelog_piece_bytes": "9m"},
            ("inFlight.bytes", "changelog.pieceBytes, 9m"),
        ),
        ({"barrier_timeout": "30s"}, ("barrier.timeout", "upload.deadline, 60s")),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    options: dict[str, str], names: tuple[str, str]
) -> None:
    with pytest.raises(ConfigError) as error:
        settings(**options)
    assert error.value.what.endswith(names[0])
    assert names[1] in str(error.value)


def test_a_jar_with_a_comma_in_its_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="comma"):
        settings(jar="/a,b/tidelog.jar")


@pytest.mark.parametrize(
    ("text", "amount"), [("8m", 8 << 20), ("1KB", 1024), ("512", 512), ("2g", 2 << 30), ("m", None)]
)
def test_sizes_are_read_as_spark_reads_them(text: str, amount: int | None) -> None:
    assert bytes_of(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"), [("10ms", 10), ("1s", 1000), ("2min", 120_000), ("5", None), ("-1s", None)]
)
def test_times_need_their_unit(text: str, amount: int | None) -> None:
    assert milliseconds_of(text) == amount


def test_configure_sets_everything_and_returns_the_builder() -> None:
    builder = Builder()
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


def test_configure_keeps_other_plugins_and_jars() -> None:
    builder = Builder(spark_plugins="org.example.Other", spark_jars="/a.jar, /b.jar")
    configure(builder, jar="/t.jar")
    assert builder._options["spark.plugins"] == "org.example.Other,tidelog.spark.TidelogPlugin"
    assert builder._options["spark.jars"] == "/a.jar,/b.jar,/t.jar"


def test_configure_keeps_plugins_of_the_defaults_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.plugins a.B\nspark.jars /a.jar\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    builder = configure(Builder(spark_jars="/b.jar"), jar="/t.jar")
    assert builder._options["spark.plugins"] == "a.B,tidelog.spark.TidelogPlugin"
    assert builder._options["spark.jars"] == "/b.jar,/t.jar"


def test_configure_twice_is_configure_once() -> None:
    builder = Builder()
    once = dict(configure(builder, jar="/t.jar")._options)
    assert configure(builder, jar="/t.jar")._options == once


def test_a_wrong_option_leaves_the_builder_alone() -> None:
    builder = Builder()
    with pytest.raises(ConfigError):
        configure(builder, jar="/t.jar", upload_threads=0)
    assert builder._options == {}


def test_a_spark_connect_builder_is_refused() -> None:
    with pytest.raises(ConfigError, match="sc://server"):
        configure(Builder(spark_remote="sc://server"), jar="/t.jar")


@pytest.mark.parametrize(
    ("plugins", "refused"),
    [("", True), ("org.example.Other", True), ("a.B,tidelog.spark.TidelogPlugin", False)],
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


def test_a_list_is_extended_once() -> None:
    assert appended(None, "x") == "x"
    assert appended("a,,b ", "x") == "a,b,x"
    assert appended("a,x", "x") == "a,x"


def test_conf_prints_lines_for_spark_defaults_that_read_back(tmp_path: Path) -> None:
    result = tidelog("spark", "conf", "--jar", "/t.jar", "--segment-bytes", "16m")
    path = tmp_path / "spark-defaults.conf"
    path.write_text("# a comment\n\n" + result.stdout)
    assert read_properties(path) == settings(jar="/t.jar", segment_bytes="16m")


def test_conf_prints_arguments_for_spark_submit() -> None:
    result = tidelog("spark", "conf", "--jar", "/with space.jar", "--format", "args")
    assert "--conf 'spark.jars=/with space.jar'" in result.stdout
    assert result.stdout.count("--conf ") == len(settings(jar="x"))


def test_conf_prints_json() -> None:
    expected = settings(snapshot_every=5)
    for arguments in (["--format", "json"], ["--json"]):
        result = tidelog("spark", "conf", "--no-jar", "--snapshot-every", "5", *arguments)
        assert json.loads(result.stdout) == expected


@pytest.mark.parametrize("arguments", [["--segment-bytes", "x"], ["--jar", "a", "--no-jar"]])
def test_conf_refuses_what_settings_refuse(arguments: list[str]) -> None:
    result = tidelog("spark", "conf", "--no-jar", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [("a.b c d", "a.b", "c d"), ("a.b=c", "a.b", "c"), ("a.b : c=d", "a.b", "c=d"), ("a", "", "")],
)
def test_properties_are_read_in_all_their_notations(
    line: str, key: str, value: str, tmp_path: Path
) -> None:
    path = tmp_path / "conf"
    path.write_text(line + "\n")
    if key:
        assert read_properties(path) == {key: value}
    else:
        with pytest.raises(ConfigError, match="line 1"):
            read_properties(path)


def test_an_argument_without_a_value_is_refused() -> None:
    assert parse_arguments(["a=1", "a=b=2"]) == {"a": "b=2"}
    with pytest.raises(ConfigError, match="name=value"):
        parse_arguments(["spark.plugins"])


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_plugin_reads_every_option_and_has_the_same_default(option: Any) -> None:
    native = Path(__file__).parents[3] / "native" / "spark-state-store" / "src" / "main"
    sources = [path.read_text() for path in sorted(native.rglob("*.scala"))]
    readers = [text for text in sources if f'"{option.key}"' in text]
    assert readers, f"no source mentions {option.key}"
    after = [text.split(f'"{option.key}"', 1)[1][:200] for text in readers]
    assert any(re.search(rf"\b{re.escape(option.default)}\b", text) for text in after)
