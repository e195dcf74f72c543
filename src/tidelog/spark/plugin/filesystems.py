"""Which file systems can make a checkpoint's files appear whole, and how.

Invariant: a scheme that is on no list here is never called safe.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.spark.plugin.check_result import CheckResult, fail, ok, warn
from tidelog.spark.plugin.settings import JARS

PUT_SCHEMES: Final = "spark.tidelog.put.schemes"
S3A_CONDITIONAL: Final = "spark.hadoop.fs.s3a.create.conditional.enabled"
MASTER: Final = "spark.master"
PACKAGES: Final = "spark.jars.packages"
DEFAULT_FS: Final = "spark.hadoop.fs.defaultFS"

S3A_SINCE: Final = (3, 4, 2)
"""The first Hadoop whose S3A writes a file only if it is absent, in one request."""

_RENAMES: Final = frozenset(
    {"file", "hdfs", "viewfs", "abfs", "abfss", "gs", "ofs", "o3fs", "maprfs"}
)
_NOT_ATOMIC: Final = frozenset(
    {"s3", "s3n", "wasb", "wasbs", "swift", "oss", "cosn", "obs", "http"}
)
_CHECK: Final = "file-system"


def scheme_of(url: str, conf: Mapping[str, str]) -> str:
    """The scheme Spark resolves a checkpoint's location to."""
    if ":/" in url:
        return url.partition(":")[0].lower()
    default = conf.get(DEFAULT_FS, "file:///")
    return default.partition(":")[0].lower()


def check_file_system(
    url: str, conf: Mapping[str, str], hadoop: tuple[int, ...] | None, jars: Sequence[str]
) -> list[CheckResult]:
    """Whether checkpoints at `url` are written atomically.

    `hadoop` is the version of Spark's Hadoop if known, `jars` the names of the jars Spark has.
    """
    scheme = scheme_of(url, conf)
    puts = {part.strip() for part in conf.get(PUT_SCHEMES, "s3a").split(",")} - {""}
    results = [_unsafe_put(other) for other in sorted(puts - {"s3a"})]
    if scheme == "s3a":
        return results + _s3a(puts, conf, hadoop, jars)
    if scheme in puts:
        return results
    if scheme in _NOT_ATOMIC:
        action = "use s3a:// for S3, or a file system whose rename is atomic"
        return [*results, fail(_CHECK, f"{scheme}: a rename there is not atomic", action)]
    if scheme not in _RENAMES:
        found = f"{scheme}: not known to rename atomically"
        action = "make sure that its rename is atomic and refuses a name that exists"
        return [*results, warn(_CHECK, found, action)]
    return [*results, _shared(scheme, conf) or ok(_CHECK, f"{scheme}: files appear by rename")]


def _unsafe_put(scheme: str) -> CheckResult:
    return fail(
        "put-schemes",
        f"{scheme}: a plain write there can be seen half done or overwrite another's",
        f"take {scheme} out of {PUT_SCHEMES}",
    )


def _s3a(
    puts: set[str], conf: Mapping[str, str], hadoop: tuple[int, ...] | None, jars: Sequence[str]
) -> list[CheckResult]:
    results = []
    if "s3a" not in puts:
        found = "s3a: files would appear by rename, which on S3 is a copy and not atomic"
        results.append(fail(_CHECK, found, f"add s3a to {PUT_SCHEMES}"))
    if conf.get(S3A_CONDITIONAL, "true").lower() != "true":
        found = "s3a: conditional writes are switched off"
        results.append(fail(_CHECK, found, f"set {S3A_CONDITIONAL}=true"))
    if hadoop is not None and hadoop < S3A_SINCE:
        found = f"s3a of Hadoop {_dotted(hadoop)}, which has no conditional writes"
        results.append(fail(_CHECK, found, f"use Hadoop {_dotted(S3A_SINCE)} or later"))
    if not results:
        results.append(ok(_CHECK, "s3a: every file is one conditional PUT"))
    return results + _hadoop_aws(conf, hadoop, jars)


def _hadoop_aws(
    conf: Mapping[str, str], hadoop: tuple[int, ...] | None, jars: Sequence[str]
) -> list[CheckResult]:
    named = ",".join([*jars, conf.get(JARS, ""), conf.get(PACKAGES, "")])
    if "hadoop-aws" in named or hadoop is None:
        return []
    package = f"org.apache.hadoop:hadoop-aws:{_dotted(hadoop)}"
    found = f"hadoop-aws is neither beside Spark's jars nor in {JARS} or {PACKAGES}"
    return [warn("hadoop-aws", found, f"set {PACKAGES}={package}, unless the cluster has it")]


def _shared(scheme: str, conf: Mapping[str, str]) -> CheckResult | None:
    master = conf.get(MASTER, "local")
    if scheme != "file" or master.startswith("local"):
        return None
    found = f"file: with {MASTER}={master}: several machines may write"
    return warn(_CHECK, found, "make sure all of them mount the same directory")


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
