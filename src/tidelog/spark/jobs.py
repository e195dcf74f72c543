"""`tidelog.spark.run` and `run_operator`: a job, or part of it, as a query of Spark.

Invariant: a query that goes on with a savepoint needs its store until the first batch is committed.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.errors import ConfigError, require
from tidelog.runtime.graph import Job
from tidelog.spark.handover.begin import Origin, begin
from tidelog.spark.handover.takeover import resumed, take_over
from tidelog.spark.job.operator import operator_frame
from tidelog.spark.job.run import JobQuery, start_query
from tidelog.spark.job.sources import SourceOptions
from tidelog.storage.open import StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def run(
    job: Job,
    *,
    checkpoint: str,
    spark: "SparkSession | None" = None,
    available_now: bool = False,
    trigger: str | None = None,
    sources: SourceOptions | None = None,
    savepoint: str | None = None,
    allow_non_restored_state: Collection[str] = (),
    endpoint: str | None = None,
    encryption_key: str | None = None,
) -> JobQuery:
    """Run a job's graph as a query whose `checkpointLocation` is `checkpoint`.

    `spark` is the session, by default the active one. With `available_now` the query ends when it
    has handled the input that is there; else it begins a batch every `trigger`, such as
    "10 seconds", or as soon as the last one has ended.

    `savepoint`, a `URL@NAME`, is the state that the query begins with: the embedded job that was
    stopped with it goes on here, and its store is fenced. `allow_non_restored_state` names state of
    it that may be left out. The state gets as many partitions as its size needs, unless the session
    sets spark.sql.shuffle.partitions. `endpoint` is that of an S3 server, and `encryption_key` says
    where the key of an encrypted store is. The query's checkpoint is not encrypted by tidelog.

    Raises ConfigError, before anything starts, for what Spark has no equivalent for;
    StateSchemaError where the states of the job are not those that are stored; and what stores
    and sinks raise.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  (heavy)

    session = spark or SparkSession.getActiveSession()
    require("spark", session, session is not None, "a SparkSession, when none is active")
    assert session is not None
    origin = Origin(savepoint or "", checkpoint, StoreAccess(endpoint, encryption_key))
    if savepoint is None:
        _refuse_key(encryption_key)
        beginning = resumed(origin.directory)
    else:
        beginning = take_over(job, origin, allow_non_restored_state)
        partitions = beginning.state_partitions(session.sparkContext.defaultParallelism)
        if partitions is not None and _PARTITIONS not in session.conf.getAll:
            session.conf.set(_PARTITIONS, str(partitions))
    return start_query(
        job,
        session,
        directory=origin.directory,
        available_now=available_now,
        trigger=trigger,
        sources=sources or SourceOptions(),
        beginning=beginning,
    )


def run_operator(
    df: "DataFrame | Mapping[str, DataFrame]",
    job: Job,
    name: str,
    *,
    output_schema: "StructType | str",
    checkpoint: str,
    savepoint: str | None = None,
    endpoint: str | None = None,
    encryption_key: str | None = None,
) -> "DataFrame":
    """The output of the job's operator `name`, with rows of `df` instead of the job's source.

    A row is a record as the source would give it, with the columns as fields. All that the job has
    between source and operator is done to it: functions, event time, keys, operators with state.
    For a job with several sources `df` has a data frame for each, by its name. Records become the
    columns of `output_schema` by name, tuples by position. `checkpoint` is the `checkpointLocation`
    of the query, whose output mode is "append".

    `savepoint`, a `URL@NAME`, is the state that the operators begin with; its store is only read.
    `endpoint` and `encryption_key` are those of `run`.

    Raises ConfigError for what Spark has no equivalent for, and StateSchemaError where the states
    of the job are not those that are stored.
    """
    if savepoint is None:
        _refuse_key(encryption_key)
    origin = Origin(savepoint or "", checkpoint, StoreAccess(endpoint, encryption_key))
    return operator_frame(
        df,
        job,
        name,
        output_schema=output_schema,
        directory=origin.directory,
        beginning=None if savepoint is None else begin(origin),
    )


def _refuse_key(encryption_key: str | None) -> None:
    """Nothing would be encrypted: the state of a query is only in its checkpoint."""
    if encryption_key is not None:
        raise ConfigError(
            f"encryption key {encryption_key} of a query on Spark",
            expected="none where the query does not begin with a savepoint (--from, savepoint=), "
            "whose store it is for",
            found="a key, with which tidelog encrypts no checkpoint of Spark",
            action="leave it out, and have the file system of the checkpoint encrypt: "
            "docs/guides/encryption.md, `Not encrypted`",
        )
