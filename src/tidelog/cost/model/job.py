"""The input of an estimate: the workload, which only the user knows, and the settings, which a plan
searches.

Invariants: rates and sizes are those of the whole job, over all its subtasks; a change of a row
counts whether the write buffer combines it with others or not; the expected number of different
keys never exceeds the number of draws or of keys, and grows with the draws. Settings of the runtime
have its own types and defaults; jobs that share the work have a store each, the workers of a job
one in common, and all of these processes share the work evenly.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import expm1, inf, log1p
from typing import Final

from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ROW_PREFIX_BYTES
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.errors import require
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.state.config import FlushConfig

_SINGLE: Final = 64
"""Ranks that are added one by one; later ones in groups of this share of their rank."""
_MOST: Final = 1 - 1e-12
"""Below 1, as the log of a key that is always drawn would be minus infinity."""


@lru_cache(maxsize=65_536)
def expected_distinct(keys: int, skew: float, draws: float) -> float:
    """Expected number of different keys among `draws` independent draws.

    The closed form is the sum over all ranks of 1 - (1 - p) ** draws. Fewer than one draw counts
    as that share of a draw.
    """
    if draws <= 1 or keys == 1:
        return min(max(draws, 0.0), 1.0)
    if skew == 0:
        return -keys * expm1(draws * log1p(-1 / keys))
    return sum(count * -expm1(draws * log1p(-p)) for count, p in _zipf(keys, skew))


@lru_cache(maxsize=256)
def _zipf(keys: int, skew: float) -> list[tuple[int, float]]:
    """(keys in a group, probability of each), the most frequent first."""
    groups, rank = list[tuple[int, float]](), 1
    while rank <= keys:
        count = min(1 + rank // _SINGLE, keys + 1 - rank)
        groups.append((count, (rank + (count - 1) / 2) ** -skew))
        rank += count
    total = sum(count * weight for count, weight in groups)
    return [(count, min(_MOST, weight / total)) for count, weight in groups]


@dataclass(frozen=True, slots=True)
class Workload:
    """Updates of keyed state; sizes in bytes, rates per second."""

    writes_per_s: float
    keys: int
    key_bytes: int = 16
    """Size of a user's key as it is encoded."""
    value_bytes: int = 100
    """Size of a value as it is encoded."""
    skew: float = 0.0
    """Exponent of the Zipf distribution of the keys; 0: uniform."""
    compression: float = 1.0
    """Size of the log as stored, over its size before compression."""
    state_bytes: int | None = None
    """Size of all live rows as the table stores them; None: they do not compress."""
    once_per_s: float = 0.0
    """Writes to rows that are written once: no later write of the same flush replaces them."""
    renewed_s: float = inf
    """After so many seconds the same keys have other rows: those of the next windows."""
    rows: float | None = None
    """Live rows; None: as many as keys."""
    new_rows_per_s: float = 0.0
    """Rows that were not there before, and of which as many are deleted."""

    def __post_init__(self) -> None:
        """Raises ConfigError for figures out of range."""
        require("the write rate", self.writes_per_s, self.writes_per_s > 0, "more than 0 a second")
        require("the number of keys", self.keys, self.keys >= 1, "1 or more")
        require("the bytes of a key", self.key_bytes, self.key_bytes >= 0, "0 or more")
        require("the bytes of a value", self.value_bytes, self.value_bytes >= 0, "0 or more")
        require("the skew", self.skew, 0 <= self.skew <= 5, "a Zipf exponent from 0 to 5")
        ratio = self.compression
        require("the compression", ratio, 0 < ratio <= 1, "a stored share above 0, at most 1")
        once = self.once_per_s
        require("the rate of single writes", once, 0 <= once <= self.writes_per_s, "a part of all")
        size = self.state_bytes
        require("the state's size", size, size is None or size > 0, "more than 0 bytes")

    @property
    def row_bytes(self) -> int:
        """A row: key group, state id, key and value."""
        return ROW_PREFIX_BYTES + self.key_bytes + self.value_bytes

    @property
    def raw_change_bytes(self) -> int:
        """A change in a block, before compression."""
        return self.row_bytes + CHANGE_OVERHEAD_BYTES

    @property
    def change_bytes(self) -> float:
        """A change in the log, as stored."""
        return self.raw_change_bytes * self.compression

    @property
    def table_bytes(self) -> float:
        """All live rows as the table stores them."""
        return self.keys * self.row_bytes if self.state_bytes is None else self.state_bytes

    @property
    def table_row_bytes(self) -> float:
        return self.table_bytes / (self.rows or self.keys)

    def table_rows(self, seconds: float) -> float:
        """Expected number of rows that a table writes of the changes of some seconds: of a row that
        was put and deleted it keeps that it is gone.
        """
        if not self.new_rows_per_s:
            return self.distinct(seconds)
        there = (self.rows or self.keys) + self.new_rows_per_s * seconds
        return min(self.distinct(seconds), there)

    def distinct(self, seconds: float) -> float:
        """Expected number of rows that flushes log of the changes of some seconds."""
        periods = max(1.0, seconds / self.renewed_s)
        repeated = (self.writes_per_s - self.once_per_s) * seconds
        changed = periods * expected_distinct(self.keys, self.skew, repeated / periods)
        return changed + self.once_per_s * seconds


@dataclass(frozen=True, slots=True)
class StoreLink:
    """The way to the object store, as one process sees it."""

    bytes_per_s: float = MaterializeConfig().load_rate
    latency_s: float = 0.03
    """Duration of a request, besides the transfer of its bytes."""
    requests: int = 8
    """Requests at a time, in a restore."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a job and what is around it; times in seconds."""

    parallelism: int = 1
    """Subtasks with keyed state, over all processes."""
    processes: int = 1
    """Jobs, each with a store."""
    workers: int = 1
    """Processes of each job."""
    descriptor_age: float | None = None
    """Materializations of a subtask since its process began, on average: its MANIFEST grows with
    each. None: so many that it has begun anew, as in a month."""
    checkpoint_interval: float = CheckpointConfig().interval
    object_check_interval: float | None = CheckpointConfig().object_check_interval
    """Seconds between two looks at whether the store has all objects; None: it is never asked."""
    retain: int = 3
    """How many of the newest checkpoints are retained."""
    restores_per_month: float = 30.0
    sources: int | None = None
    """Subtasks of sources, over all processes; None: as many as have keyed state."""
    link: StoreLink = field(default_factory=StoreLink)
    flush: FlushConfig = field(default_factory=FlushConfig)
    upload: UploadConfig = field(default_factory=UploadConfig)
    materialize: MaterializeConfig = field(default_factory=MaterializeConfig)

    def __post_init__(self) -> None:
        """Raises ConfigError for settings that no job can have."""
        require("processes", self.processes, self.processes >= 1, "1 or more")
        require("workers", self.workers, self.workers >= 1, "1 or more")
        expected = f"{self.uploaders} (processes x workers) or more"
        require("parallelism", self.parallelism, self.parallelism >= self.uploaders, expected)
        require("retained checkpoints", self.retain, self.retain >= 1, "1 or more")
        for what, value in (
            ("checkpoint interval", self.checkpoint_interval),
            ("materialization interval", self.materialize.interval),
            ("replay target", self.materialize.replay_target),
            ("bandwidth", self.link.bytes_per_s),
        ):
            require(what, value, value > 0, "more than 0")
        require("latency", self.link.latency_s, self.link.latency_s >= 0, "0 or more")
        restores = self.restores_per_month
        require("restores a month", restores, 0 <= restores < inf, "0 or more, and finite")

    @property
    def uploaders(self) -> int:
        """Processes that have a log of their own."""
        return self.processes * self.workers

    @property
    def keyed_per_process(self) -> float:
        return self.parallelism / self.uploaders

    @property
    def sources_per_process(self) -> float:
        return (self.parallelism if self.sources is None else self.sources) / self.uploaders

    def with_materialization(self, interval: float, replay_target: float) -> "Settings":
        config = replace(self.materialize, interval=interval, replay_target=replay_target)
        return replace(self, materialize=config)
