"""Static checks: do a query's settings, its file system and the installed Spark give the
guarantees of the plug-in?

Invariants: nothing is started, written or contacted; `check_settings` is a pure function. Settings
that are absent count with the value Spark gives them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError
from tidelog.spark.plugin.check_result import CheckResult, fail, ok, warn
from tidelog.spark.plugin.filesystems import check_file_system
from tidelog.spark.plugin.jar import cached_jar
from tidelog.spark.plugin.options import OPTIONS, PREFIX, check_together, render
from tidelog.spark.plugin.settings import (
    CHANGELOG,
    FILE_MANAGER,
    FILE_MANAGER_CLASS,
    FORMAT,
    JARS,
    PLUGIN_CLASS,
    PLUGINS,
    PROVIDER,
    PROVIDER_CLASS,
)
from tidelog.spark.plugin.toolchain import OLDEST_JAVA, Spark, find_java, find_spark, java_version

SPECULATION: Final = "spark.speculation"
CLASS_PATHS: Final = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")

_HADOOP_JAR: Final = re.compile(r"hadoop-client-api-(\d+)\.(\d+)\.(\d+).*\.jar")


def check_settings(
    conf: Mapping[str, str], url: str | None = None, spark: Spark | None = None
) -> list[CheckResult]:
    """Check the settings of a query, and with `url` those for its checkpoint's file system.

    `conf` holds Spark's settings by their full names; `spark` is the installation that will run the
    query, if it is known.
    """
    jars = jar_names(spark) if spark else []
    hadoop = hadoop_version(jars)
    results = [
        _plugin(conf),
        _jar(conf),
        _class("file-manager", conf, FILE_MANAGER, FILE_MANAGER_CLASS),
        _class("provider", conf, PROVIDER, PROVIDER_CLASS),
        _changelog(conf),
        _format(conf),
        _speculation(conf),
        *_own_options(conf),
    ]
    if url is not None:
        results += check_file_system(url, conf, hadoop, jars)
    return results


def check_installation(spark_home: Path | None = None) -> tuple[list[CheckResult], Spark | None]:
    """Check what this machine has: Spark, Java, and the plug-in's jar; and the Spark found."""
    spark: Spark | None = None
    results = []
    try:
        spark = find_spark(spark_home)
        results.append(ok("spark", f"{spark.version} at {spark.home}"))
    except ConfigError as error:
        results.append(_from_error("spark", error))
    results.append(_java())
    if spark is not None:
        results.append(_compiled(spark))
    return results, spark


def jar_names(spark: Spark) -> list[str]:
    """Names of the jars of an installation."""
    return sorted(path.name for path in (spark.home / "jars").glob("*.jar"))


def hadoop_version(jars: list[str]) -> tuple[int, ...] | None:
    """Version of the Hadoop client among these jars."""
    for name in jars:
        match = _HADOOP_JAR.fullmatch(name)
        if match:
            return tuple(map(int, match.groups()))
    return None


def is_true(conf: Mapping[str, str], key: str, default: bool = False) -> bool:
    """A setting that is true or false, as Spark reads it."""
    return conf.get(key, str(default)).strip().lower() == "true"


def _plugin(conf: Mapping[str, str]) -> CheckResult:
    plugins = [part.strip() for part in conf.get(PLUGINS, "").split(",")]
    if PLUGIN_CLASS in plugins:
        return ok("plugin", f"{PLUGINS} has {PLUGIN_CLASS}")
    return fail("plugin", f"{PLUGINS} lacks it", f"add {PLUGIN_CLASS} to {PLUGINS}")


def _jar(conf: Mapping[str, str]) -> CheckResult:
    for key in (JARS, *CLASS_PATHS):
        if "tidelog" in conf.get(key, ""):
            return ok("jar", f"{key} names it")
    action = f"add the output of `tidelog spark jar` to {JARS}, unless the cluster has it"
    return warn("jar", f"no jar of tidelog in {JARS} or the extra class paths", action)


def _class(check: str, conf: Mapping[str, str], key: str, expected: str) -> CheckResult:
    found = conf.get(key, "Spark's default").strip()
    if found == expected:
        return ok(check, expected)
    return fail(check, f"{key} is {found}", f"set {key}={expected}")


def _changelog(conf: Mapping[str, str]) -> CheckResult:
    if is_true(conf, CHANGELOG):
        return ok("changelog", "changelog checkpointing is on")
    found = "changelog checkpointing is off: every commit uploads a snapshot"
    return fail("changelog", found, f"set {CHANGELOG}=true")


def _format(conf: Mapping[str, str]) -> CheckResult:
    found = conf.get(FORMAT, "1").strip()
    if found == "2":
        return ok("format", "checkpoint format 2: commits name what they need")
    reason = f"checkpoint format {found}: commits do not name what must be durable"
    return fail("format", reason, f"set {FORMAT}=2")


def _speculation(conf: Mapping[str, str]) -> CheckResult:
    if not is_true(conf, SPECULATION):
        return ok("speculation", "off")
    if conf.get(FORMAT, "1").strip() == "2":
        return ok("speculation", "on; with checkpoint format 2 each attempt has its own names")
    found = "on: with checkpoint format 1 two attempts write the same names"
    return fail("speculation", found, f"set {FORMAT}=2 or {SPECULATION}=false")


def _own_options(conf: Mapping[str, str]) -> list[CheckResult]:
    known = {option.key: option for option in OPTIONS}
    results = []
    valid = {}
    for key in sorted(key for key in conf if key.startswith(PREFIX)):
        if key not in known:
            action = f"correct the name; options are {', '.join(known)}"
            results.append(warn("options", f"{key} is no option", action))
            continue
        try:
            valid[key] = render(known[key], conf[key])
        except ConfigError as error:
            results.append(_from_error("options", error))
    try:
        check_together(valid)
    except ConfigError as error:
        results.append(_from_error("options", error))
    return results or [ok("options", f"{len(valid)} of the plug-in's own are set")]


def _java() -> CheckResult:
    try:
        java = find_java()
        version = java_version(java)
    except ConfigError as error:
        return _from_error("java", error)
    if version < OLDEST_JAVA:
        action = f"install Java {OLDEST_JAVA} or newer and set JAVA_HOME"
        return fail("java", f"{version} at {java}", action)
    return ok("java", f"{version} at {java}")


def _compiled(spark: Spark) -> CheckResult:
    try:
        jar = cached_jar(spark)
    except ConfigError as error:
        return _from_error("compiled", error)
    if jar is None:
        return ok("compiled", "not yet; the first use compiles the plug-in within a minute")
    return ok("compiled", str(jar))


def _from_error(check: str, error: ConfigError) -> CheckResult:
    expected = f", expected {error.expected}" if error.expected else ""
    return fail(check, f"{error.what}: found {error.found}{expected}", error.action)
