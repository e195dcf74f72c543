"""The settings that turn the plug-in on, how users write them, and how they get into a session.

Invariants: `settings` is a pure function of its arguments and the only place that knows which
settings the plug-in needs; `configure` takes nothing away that the builder already has; a session
that it prepares never starts on a JVM that lacks the plug-in: Spark reads spark.jars into the
driver's class path only when the JVM starts, and pyspark keeps the JVM of a stopped session.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from tidelog.errors import ConfigError
from tidelog.events import Event
from tidelog.spark.plugin.jar import plugin_jar
from tidelog.spark.plugin.options import OPTIONS, OptionValue, check_together, render
from tidelog.spark.plugin.toolchain import home_of

logger = logging.getLogger(__name__)

PLUGINS: Final = "spark.plugins"
JARS: Final = "spark.jars"
FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SNAPSHOT_PERIOD: Final = "spark.sql.streaming.stateStore.minDeltasForSnapshot"

PLUGIN_CLASS: Final = "tidelog.spark.TidelogPlugin"
FILE_MANAGER_CLASS: Final = "tidelog.spark.TidelogCheckpointFileManager"
PROVIDER_CLASS: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

FIXED: Final = {
    PLUGINS: PLUGIN_CLASS,
    FILE_MANAGER: FILE_MANAGER_CLASS,
    PROVIDER: PROVIDER_CLASS,
    CHANGELOG: "true",
    FORMAT: "2",
}
"""Settings without which nothing works; Spark's own defaults are others."""

PROMETHEUS: Final = "spark.metrics.conf.driver.sink.prometheusServlet."
METRICS: Final = {
    "spark.metrics.namespace": "spark",
    PROMETHEUS + "class": "org.apache.spark.metrics.sink.PrometheusServlet",
    PROMETHEUS + "path": "/metrics/prometheus",
}
"""Settings with which Prometheus reads the driver, and the names of docs/operations/ hold: without
a namespace they have the application's id, another one at each start."""

LOCAL: Final = "local"
LISTS: Final = (PLUGINS, JARS)
"""Settings that other software shares: values joined by commas."""

NOT_IN_JARS: Final = ",#?[{"
"""Separates entries of spark.jars; ends a path there; begin the patterns that Spark resolves."""

_LINE: Final = re.compile(r"([^\s=:]+)\s*[\s=:]\s*(.*)")
_GOES_ON: Final = re.compile(r"(?<!\\)(?:\\\\)*\\$")
"""At the end of a line whose value goes on in the next one."""

Builder = TypeVar("Builder")


def settings(
    *,
    jar: Path | str | None = None,
    snapshot_every: int | None = None,
    metrics: bool = False,
    **options: OptionValue | None,
) -> dict[str, str]:
    """All settings a query with the plug-in needs, by their full names.

    `jar` is the plug-in's jar; without it the cluster must have the jar on its class path.
    `snapshot_every` is Spark's minDeltasForSnapshot: each state store takes a snapshot every that
    many batches. `metrics` has Spark's driver expose its metrics to Prometheus, under names that
    stay the same from start to start. `options` are those of `tidelog.spark.plugin.options` by
    their argument names, such as `segment_bytes="16m"`: sizes in bytes or with a unit (k, m, g),
    times with their unit (ms, s, min). None stands for the default. Raises ConfigError for a value
    or name that is wrong.
    """
    rendered = {**FIXED, **(METRICS if metrics else {})}
    if jar is not None:
        rendered[JARS] = _jar_entry(jar)
    if snapshot_every is not None:
        rendered[SNAPSHOT_PERIOD] = _snapshot_period(snapshot_every)
    by_argument = {option.argument: option for option in OPTIONS}
    for argument, value in options.items():
        if argument not in by_argument:
            raise ConfigError(
                f"option {argument!r} of the Spark plug-in",
                expected=f"one of {', '.join(['jar', 'snapshot_every', 'metrics', *by_argument])}",
                found="another name",
                action="correct the name",
            )
        if value is not None:
            option = by_argument[argument]
            rendered[option.key] = render(option, value)
    check_together(rendered)
    return rendered


def configure(
    builder: Builder,
    *,
    jar: Path | str | None = None,
    spark_home: Path | str | None = None,
    snapshot_every: int | None = None,
    metrics: bool = False,
    **options: OptionValue | None,
) -> Builder:
    """Turn the plug-in on for the session that `builder`, a SparkSession.builder, will make.

    Compiles the plug-in on first use unless `jar` is given. Other arguments are those of
    `settings`. Values of spark.plugins and spark.jars that stand in the builder, else in what
    spark-submit was given, or else in spark-defaults.conf, stay; those in PYSPARK_SUBMIT_ARGS are
    not seen. On this machine Python workers run the interpreter of this process, unless
    PYSPARK_PYTHON or spark.pyspark.python say otherwise. Raises ConfigError: a wrong option, no
    supported Spark or Java, a builder of Spark Connect, or a SparkContext or driver that already
    runs without the plug-in.
    """
    before: Mapping[str, Any] = {
        **_defaults(spark_home),
        **_submitted(),
        **getattr(builder, "_options", {}),
    }
    refuse_connect(
        before,
        "remove that, or start the Spark Connect server with the settings of `tidelog spark conf`",
    )
    _refuse_running_context()
    end_jvm_without(PLUGIN_CLASS)
    checked = settings(jar=jar, snapshot_every=snapshot_every, metrics=metrics, **options)
    if jar is None:
        checked[JARS] = _jar_entry(plugin_jar(spark_home))
    use_this_python(before)
    for key, value in checked.items():
        text = appended(before.get(key), value) if key in LISTS else value
        builder.config(key, text)  # type: ignore[attr-defined]
    return builder


def use_this_python(options: Mapping[str, Any]) -> None:
    """Let workers on this machine be of the interpreter that runs: another one has no tidelog."""
    on_this_machine = str(options.get("spark.master") or LOCAL).startswith(LOCAL)
    if on_this_machine and "spark.pyspark.python" not in options:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _defaults(spark_home: Path | str | None) -> Mapping[str, str]:
    """The settings in spark-defaults.conf, which the builder's replace."""
    directory = os.environ.get("SPARK_CONF_DIR")
    try:
        conf = Path(directory) if directory else home_of(spark_home) / "conf"
    except ConfigError:
        return {}  # what needs a Spark says so
    path = conf / "spark-defaults.conf"
    return read_properties(path) if path.is_file() else {}


def _submitted() -> Mapping[str, str]:
    """The settings of the driver that spark-submit has started, which the builder's replace."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    SparkContext._ensure_initialized()  # connects to that driver
    return dict(SparkConf().getAll())


def with_plugin(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session with the plug-in; those of `conf` stay, and lists have both."""
    rendered = settings(jar=plugin_jar())
    for name in LISTS:
        rendered[name] = appended(conf.get(name), rendered[name])
    return rendered | {name: value for name, value in conf.items() if name not in LISTS}


def appended(before: object, value: str) -> str:
    """`before`, a setting of values joined by commas, with `value` among them."""
    parts = [part.strip() for part in str(before or "").split(",") if part.strip()]
    return ",".join(parts if value in parts else [*parts, value])


def has_plugin(plugins: str) -> bool:
    """Whether the plug-in is among these, the value of spark.plugins."""
    return PLUGIN_CLASS in map(str.strip, plugins.split(","))


def _jar_entry(jar: Path | str) -> str:
    text = str(jar)
    if not text or any(character in text for character in NOT_IN_JARS):
        raise ConfigError(
            "path of the plug-in's jar",
            expected="a path without a comma, which separates the entries of spark.jars, and "
            f"without any of {' '.join(NOT_IN_JARS[1:])}, with which Spark looks for another file",
            found=repr(text),
            action="put it elsewhere, or set TIDELOG_CACHE to another directory",
        )
    return text


def _snapshot_period(batches: int) -> str:
    if isinstance(batches, bool) or not isinstance(batches, int) or batches < 1:
        raise ConfigError(
            f"option snapshot_every ({SNAPSHOT_PERIOD})",
            expected="a number of batches, 1 or more",
            found=repr(batches),
            action="correct it, or leave it out for Spark's default of 10",
        )
    return str(batches)


def refuse_connect(options: Mapping[str, Any], action: str) -> None:
    """Refuse a session that pyspark would make a client of Spark Connect, or that it would give
    a server of its own, whose settings and driver are out of reach; `action` is what to do.
    """
    for key in ("spark.remote", "spark.api.mode"):
        variable = key.upper().replace(".", "_")
        name = key if key in options else variable
        value = str(options.get(key) or os.environ.get(variable, ""))
        if value and (key == "spark.remote" or value.lower() == "connect"):
            raise ConfigError(
                "session builder",
                expected="one that starts Spark in this process",
                found=f"a client of Spark Connect, by {name}={value}",
                action=action,
            )


def read_properties(path: Path) -> dict[str, str]:
    """Settings of a file like spark-defaults.conf; raises ConfigError when it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(
            f"properties file {path}",
            expected="lines of a setting and its value",
            found=str(cause),
            action="correct --properties-file",
        ) from cause
    properties = {}
    numbered = enumerate(map(str.strip, lines), start=1)
    for number, line in numbered:
        if not line or line.startswith(("#", "!")):
            continue
        setting = line
        while _GOES_ON.search(setting):
            setting = setting[:-1] + next(numbered, (0, ""))[1]
        match = _LINE.fullmatch(setting)
        if match is None:
            raise ConfigError(
                f"properties file {path}, line {number}",
                expected="a setting and its value",
                found="something else",
                action="correct the line",
            )
        properties[match[1]] = match[2].strip()
    return properties


def _refuse_running_context() -> None:
    """Plug-ins are started with the SparkContext: later it is too late."""
    context = getattr(_pyspark_context(), "_active_spark_context", None)
    plugins = PLUGIN_CLASS if context is None else context.getConf().get(PLUGINS, "")
    if not has_plugin(plugins):
        raise ConfigError(
            "the SparkContext that runs in this process",
            expected=f"{PLUGIN_CLASS} among its {PLUGINS}",
            found=plugins or "no plug-in",
            action="stop it, for example with spark.stop(), then build the session again",
        )


def end_jvm_without(plugin: str) -> None:
    """End the JVM of a stopped session if it cannot load `plugin`; the next session starts one.

    Raises ConfigError if that JVM is not this process's own, but that of spark-submit.
    """
    context = _pyspark_context()
    gateway = getattr(context, "_gateway", None)
    if gateway is None or _loads(gateway, plugin):
        return
    if getattr(gateway, "proc", None) is None:
        raise ConfigError(
            "the driver that spark-submit started",
            expected=f"{plugin} on its class path",
            found="no such class",
            action="pass the settings of `tidelog spark conf` to spark-submit",
        )
    Event.JVM_ENDED.log(logger, plugin=plugin)
    end_jvm(context)


def end_jvm(context: Any) -> None:
    """End the JVM that pyspark started in this process and wait until it has gone.

    `context` is the class pyspark.SparkContext; no session may run.
    """
    gateway = context._gateway
    context._gateway = context._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    gateway.proc.wait()


def _pyspark_context() -> Any:
    return getattr(sys.modules.get("pyspark"), "SparkContext", None)


def _loads(gateway: Any, name: str) -> bool:
    from py4j.protocol import Py4JError  # noqa: PLC0415  (comes with pyspark)

    java = gateway.jvm.java.lang
    try:
        java.Class.forName(name, False, java.Thread.currentThread().getContextClassLoader())
    except Py4JError:
        return False
    return True
