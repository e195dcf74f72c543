"""Settings of an embedded job."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidelog.changelog.uploader import UploadConfig
from tidelog.checkpoint.coordinator import Schedule
from tidelog.errors import ConfigError, require
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.channels.messages import BarrierOrder
from tidelog.runtime.memory import DEFAULT_MEMORY, LEAST_MEMORY, MemoryParts
from tidelog.state.backend import FlushConfig
from tidelog.state.key_groups import DEFAULT_KEY_GROUPS, MAX_KEY_GROUPS
from tidelog.state.restore.restorer import RestoreConfig

Mode = Literal["exactly-once", "at-least-once"]
UnalignedMode = Literal["off", "timeout", "always"]


@dataclass(frozen=True, slots=True)
class UnalignedConfig:
    """Whether barriers overtake records, which then are stored with the checkpoint."""

    mode: UnalignedMode = "timeout"
    """When barriers overtake: never, once a checkpoint takes longer than `timeout`, or at once. In
    mode "at-least-once" they never do."""
    timeout: float = 30.0
    """Seconds since the start of the checkpoint."""
    overdraft: int = 5
    """Buffers that may wait in an output beyond its own, for one input that makes much output."""

    @property
    def order(self) -> BarrierOrder:
        """The order that the driver gives to barriers."""
        orders: dict[UnalignedMode, BarrierOrder] = {
            "off": "aligned",
            "timeout": "may-switch",
            "always": "unaligned",
        }
        return orders[self.mode]


@dataclass(frozen=True, slots=True)
class JobConfig:
    """How a job runs; every part has defaults that suit a laptop."""

    parallelism: int = 1
    key_groups: int = DEFAULT_KEY_GROUPS
    mode: Mode = "exactly-once"
    changelog: bool = True
    """Off: every checkpoint uploads the table's new files instead of the log."""
    table: Literal["rocksdb", "memory"] = "rocksdb"
    work_dir: Path | None = None
    """Where tables live; they need no durability. None: the system's temporary directory."""
    local_recovery: Path | None = None
    """A directory that outlives the process: segments and table files are kept there too, and a
    restart on this machine reads them from it. None: everything comes from the store.
    """
    local_recovery_bytes: int = 32 << 30
    """Most bytes that the copies in `local_recovery` take."""
    memory: int = DEFAULT_MEMORY
    """Bytes for write buffers, caches, memtables, channels and uploads of all subtasks together.
    Python itself, what user functions keep and tables of kind "memory" come on top.
    """
    channel_buffers: int = 2
    """Buffers a channel holds before its sender waits."""
    buffer_bytes: int = 1 << 20
    """Most bytes of memory that a buffer takes, fewer where `memory` has no room for all buffers; a
    larger record is a buffer of its own."""
    buffer_records: int = 8192
    """Most records of a buffer."""
    retain: int = 3
    """Checkpoints kept besides savepoints and pinned slots."""
    allow_dropped_state: tuple[str, ...] = ()
    """Operators (`NAME`) and states (`NAME/STATE`) that the job no longer has: what the checkpoint
    holds of them is lost. Operators and states that hold nothing need not be listed.
    """
    drop_in_flight: bool = False
    """Restore without the in-flight data of the checkpoint: those records are lost."""
    schedule: Schedule = field(default_factory=Schedule)
    unaligned: UnalignedConfig = field(default_factory=UnalignedConfig)
    upload: UploadConfig = field(default_factory=UploadConfig)
    materialize: MaterializeConfig = field(default_factory=MaterializeConfig)
    flush: FlushConfig = field(default_factory=FlushConfig)
    restore: RestoreConfig = field(default_factory=RestoreConfig)

    def __post_init__(self) -> None:
        """Raises ConfigError for settings out of range."""
        groups = self.key_groups
        expected = f"a number from 1 to {MAX_KEY_GROUPS}"
        require("key groups", groups, 1 <= groups <= MAX_KEY_GROUPS, expected)
        self._check_parallelism("parallelism", self.parallelism)
        for what, value, least in (
            ("retained checkpoints", self.retain, 1),
            ("bytes of local copies", self.local_recovery_bytes, 0),
            ("bytes of memory", self.memory, LEAST_MEMORY),
            ("channel buffers", self.channel_buffers, 1),
            ("bytes of a buffer", self.buffer_bytes, 1),
            ("records of a buffer", self.buffer_records, 1),
            ("overdraft buffers", self.unaligned.overdraft, 0),
            ("limit of bytes held for upload", self.upload.limit_bytes, 0),
        ):
            require(what, value, value >= least, f"a number of at least {least}")
        for what, length in (
            ("checkpoint interval", self.schedule.interval),
            ("checkpoint timeout", self.schedule.timeout),
            ("time until a checkpoint is unaligned", self.unaligned.timeout),
            ("materialization interval", self.materialize.interval),
            ("replay target", self.materialize.replay_target),
            ("segment size", self.upload.segment_bytes),
            ("concurrent uploads", self.upload.concurrency),
            ("rows per flush", self.flush.rows),
        ):
            require(what, length, length > 0, "more than 0")

    @property
    def overtakes(self) -> bool:
        """Whether barriers may overtake records."""
        return self.mode == "exactly-once" and self.unaligned.mode != "off"

    @property
    def memory_parts(self) -> MemoryParts:
        """How the memory is divided."""
        return MemoryParts.of(self.memory)

    def table_of(self, *, keyed: bool) -> Literal["rocksdb", "memory"]:
        """The kind of table of an operator."""
        # Sources and stateless operators hold little: a memory table costs them no files.
        return self.table if keyed else "memory"

    def check_parallelism(self, operator: str, parallelism: int) -> None:
        """Raises ConfigError when an operator has no subtask, or one without key groups."""
        self._check_parallelism(f"parallelism of {operator!r}", parallelism)

    def _check_parallelism(self, what: str, parallelism: int) -> None:
        if 1 <= parallelism <= self.key_groups:
            return
        action = "raise it"
        if parallelism > 0:
            action = (
                f"lower it, or set --key-groups (JobConfig.key_groups) to {parallelism} or more "
                "while the store has no checkpoint: the first one fixes them, and only a run from "
                "the start, on an empty store, can have others"
            )
        raise ConfigError(
            what,
            expected=f"a number from 1 to {self.key_groups}, the number of key groups",
            found=str(parallelism),
            action=action,
        )
