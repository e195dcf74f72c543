"""What an estimate says of one way to make state durable.

Invariant: strategies answer the same questions, so they can stand side by side; what a strategy
does not have, or nobody measured, is None.
"""

from dataclasses import dataclass
from enum import StrEnum

from tidelog.estimate.usage import Usage


class Strategy(StrEnum):
    """The ways to make state durable that can be estimated."""

    CHANGELOG = "changelog"
    INCREMENTAL = "incremental"
    SPARK_HDFS = "spark-hdfs"
    SPARK_ROCKSDB = "spark-rocksdb"
    SPARK_CHANGELOG = "spark-changelog"
    SPARK_TIDELOG = "spark-tidelog"

    @property
    def explained(self) -> str:
        """In a few words."""
        return _EXPLAINED[self]


_EXPLAINED = {
    Strategy.CHANGELOG: "tidelog, changelog on",
    Strategy.INCREMENTAL: "tidelog, changelog off: RocksDB's new files at every checkpoint",
    Strategy.SPARK_HDFS: "Spark's default store",
    Strategy.SPARK_ROCKSDB: "Spark's RocksDB store without changelog",
    Strategy.SPARK_CHANGELOG: "Spark's RocksDB store with changelog",
    Strategy.SPARK_TIDELOG: "the same with tidelog's plug-in",
}


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """The log of the whole job."""

    combine: float
    """Updates per change that is logged."""
    changes_per_s: float
    bytes_per_s: float
    peak_bytes: float
    """Stored at most."""
    rule_of_thumb_bytes: float
    """`formulas.log_peak_bytes`: without retention and without the time uploads take."""
    replay_changes: float
    """That a restore replays, at most."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One strategy; times in seconds."""

    strategy: Strategy
    usage: Usage
    cycle_s: float
    """Between two checkpoints: longer than asked for when one takes longer."""
    checkpoint_s: float | None
    restore_s: float
    """When the log is longest, the process already started."""
    replay_counted: bool
    """The restore contains the time to replay changes."""
    materialize_s: float | None = None
    """Between two materializations of a subtask."""
    trigger: str | None = None
    """What starts most of them."""
    log: LogEstimate | None = None
    warnings: tuple[str, ...] = ()
