"""Static checks of `tidelog spark check`: do a query's settings, its file system and the installed
Spark give the guarantees of the plug-in?

Invariants: nothing is started, written or contacted; `check_settings` is a pure function. Settings
that are absent count with the value Spark gives them; a file system that is on no list here is
never called safe.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tidelog.errors import ConfigError
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
    has_plugin,
)
from tidelog.spark.plugin.toolchain import OLDEST_JAVA, Spark, find_java, find_spark, java_version

Conf = Mapping[str, str]
"""Spark's settings by their full names."""

SPECULATION: Final = "spark.speculation"
CLASS_PATHS: Final = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
PUT_SCHEMES: Final = PREFIX + "put.schemes"
S3A_CONDITIONAL: Final = "spark.hadoop.fs.s3a.create.conditional.enabled"
MASTER: Final = "spark.master"
PACKAGES: Final = "spark.jars.packages"
DEFAULT_FS: Final = "spark.hadoop.fs.defaultFS"

S3A_SINCE: Final = (3, 4, 2)
"""The first Hadoop whose S3A writes a file only if it is absent, in one request."""

_HADOOP_JAR: Final = re.compile(r"hadoop-client-api-(\d+)\.(\d+)\.(\d+).*\.jar")
_RENAMES: Final = frozenset(
    {"file", "hdfs", "viewfs", "abfs", "abfss", "gs", "ofs", "o3fs", "maprfs"}
)
_NOT_ATOMIC: Final = frozenset(
    {"s3", "s3n", "wasb", "wasbs", "swift", "oss", "cosn", "obs", "http"}
)
_FILE_SYSTEM: Final = "file-system"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: fine, doubtful or not safe; without `action` nothing is to do."""

    check: str
    verdict: Literal["ok", "warn", "fail"]
    found: str
    action: str | None = None


def ok(check: str, found: str) -> CheckResult:
    """Nothing to do."""
    return CheckResult(check, "ok", found)


def warn(check: str, found: str, action: str) -> CheckResult:
    """The result of a check that passes, although something may be not as intended."""
    return CheckResult(check, "warn", found, action)


def fail(check: str, found: str, action: str) -> CheckResult:
    """The guarantees do not hold."""
    return CheckResult(check, "fail", found, action)


def check_settings(
    conf: Conf, url: str | None = None, spark: Spark | None = None
) -> list[CheckResult]:
    """Check the settings of a query, and with `url` those for its checkpoint's file system.

    `spark` is the installation that will run the query, if it is known.
    """
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
        jars = sorted(p.name for p in (spark.home / "jars").glob("*.jar")) if spark else []
        results += _file_system(url, conf, jars)
    return results


def check_installation(spark_home: Path | None = None) -> tuple[list[CheckResult], Spark | None]:
    """Check what this machine has: Spark, Java, and the plug-in's jar; and the Spark found."""
    try:
        spark = find_spark(spark_home)
    except ConfigError as error:
        return [_from_error("spark", error), _java()], None
    installation = ok("spark", f"{spark.version} at {spark.home}")
    return [installation, _java(), _compiled(spark)], spark


def hadoop_version(jars: Sequence[str]) -> tuple[int, ...] | None:
    """Version of the Hadoop client among these jars."""
    matches = filter(None, map(_HADOOP_JAR.fullmatch, jars))
    return next((tuple(map(int, match.groups())) for match in matches), None)


def _is_true(conf: Conf, key: str, default: bool = False) -> bool:
    """A setting that is true or false, as Spark reads it."""
    return conf.get(key, str(default)).strip().lower() == "true"


def _plugin(conf: Conf) -> CheckResult:
    if has_plugin(conf.get(PLUGINS, "")):
        return ok("plugin", f"{PLUGINS} has {PLUGIN_CLASS}")
    return fail("plugin", f"{PLUGINS} lacks it", f"add {PLUGIN_CLASS} to {PLUGINS}")


def _jar(conf: Conf) -> CheckResult:
    for key in (JARS, *CLASS_PATHS):
        if "tidelog" in conf.get(key, ""):
            return ok("jar", f"{key} names it")
    action = f"add the output of `tidelog spark jar` to {JARS}, unless the cluster has it"
    return warn("jar", f"no jar of tidelog in {JARS} or the extra class paths", action)


def _class(check: str, conf: Conf, key: str, expected: str) -> CheckResult:
    actual = conf.get(key, "Spark's default").strip()
    if actual == expected:
        return ok(check, expected)
    return fail(check, f"{key} is {actual}", f"set {key}={expected}")


def _changelog(conf: Conf) -> CheckResult:
    if _is_true(conf, CHANGELOG):
        return ok("changelog", "changelog checkpointing is on")
    actual = "changelog checkpointing is off: every commit uploads a snapshot"
    return fail("changelog", actual, f"set {CHANGELOG}=true")


def _format(conf: Conf) -> CheckResult:
    version = conf.get(FORMAT, "1").strip()
    if version == "2":
        return ok("format", "checkpoint format 2: commits name what they need")
    reason = f"checkpoint format {version}: commits do not name what must be durable"
    return fail("format", reason, f"set {FORMAT}=2")


def _speculation(conf: Conf) -> CheckResult:
    if not _is_true(conf, SPECULATION):
        return ok("speculation", "off")
    if conf.get(FORMAT, "1").strip() == "2":
        return ok("speculation", "on; with checkpoint format 2 each attempt has its own names")
    actual = "on: with checkpoint format 1 two attempts write the same names"
    return fail("speculation", actual, f"set {FORMAT}=2 or {SPECULATION}=false")


def _own_options(conf: Conf) -> list[CheckResult]:
    options = {option.key: option for option in OPTIONS}
    results, valid = [], {}
    for key in sorted(key for key in conf if key.startswith(PREFIX)):
        if key not in options:
            action = f"correct the name; options are {', '.join(options)}"
            results.append(warn("options", f"{key} is no option", action))
            continue
        try:
            valid[key] = render(options[key], conf[key])
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
    return ok("compiled", str(jar or "not yet; the first use compiles the plug-in in a minute"))


def _from_error(check: str, error: ConfigError) -> CheckResult:
    expected = f", expected {error.expected}" if error.expected else ""
    return fail(check, f"{error.what}: found {error.found}{expected}", error.action)


def _file_system(url: str, conf: Conf, jars: Sequence[str]) -> list[CheckResult]:
    """Whether checkpoints at `url` are written atomically; `jars` are the names of Spark's."""
    scheme = (url if ":/" in url else conf.get(DEFAULT_FS, "file:///")).partition(":")[0].lower()
    puts = {part.strip() for part in conf.get(PUT_SCHEMES, "s3a").split(",")} - {""}
    danger = "a plain write there can be seen half done or overwrite another's"
    results = [
        fail("put-schemes", f"{other}: {danger}", f"take {other} out of {PUT_SCHEMES}")
        for other in sorted(puts - {"s3a"})
    ]
    if scheme == "s3a":
        return results + _s3a(puts, conf, jars)
    if scheme in puts:
        return results
    if scheme in _NOT_ATOMIC:
        action = "use s3a:// for S3, or a file system whose rename is atomic"
        return [*results, fail(_FILE_SYSTEM, f"{scheme}: a rename there is not atomic", action)]
    if scheme not in _RENAMES:
        actual = f"{scheme}: not known to rename atomically"
        action = "make sure that its rename is atomic and refuses a name that exists"
        return [*results, warn(_FILE_SYSTEM, actual, action)]
    master = conf.get(MASTER, "local")
    if scheme == "file" and not master.startswith("local"):
        actual = f"file: with {MASTER}={master}: several machines may write"
        action = "make sure all of them mount the same directory"
        return [*results, warn(_FILE_SYSTEM, actual, action)]
    return [*results, ok(_FILE_SYSTEM, f"{scheme}: files appear by rename")]


def _s3a(puts: set[str], conf: Conf, jars: Sequence[str]) -> list[CheckResult]:
    results, hadoop = [], hadoop_version(jars)
    if "s3a" not in puts:
        actual = "s3a: files would appear by rename, which on S3 is a copy and not atomic"
        results.append(fail(_FILE_SYSTEM, actual, f"add s3a to {PUT_SCHEMES}"))
    if not _is_true(conf, S3A_CONDITIONAL, default=True):
        actual = "s3a: conditional writes are switched off"
        results.append(fail(_FILE_SYSTEM, actual, f"set {S3A_CONDITIONAL}=true"))
    if hadoop is not None and hadoop < S3A_SINCE:
        actual = f"s3a of Hadoop {_dotted(hadoop)}, which has no conditional writes"
        results.append(fail(_FILE_SYSTEM, actual, f"use Hadoop {_dotted(S3A_SINCE)} or later"))
    if not results:
        results.append(ok(_FILE_SYSTEM, "s3a: every file is one conditional PUT"))
    packages = ",".join([*jars, conf.get(JARS, ""), conf.get(PACKAGES, "")])
    if "hadoop-aws" not in packages and hadoop is not None:
        package = f"org.apache.hadoop:hadoop-aws:{_dotted(hadoop)}"
        actual = f"hadoop-aws is neither among Spark's jars nor in {JARS} or {PACKAGES}"
        action = f"set {PACKAGES}={package}, unless the cluster has it"
        results.append(warn("hadoop-aws", actual, action))
    return results


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
