"""Settings of an embedded job."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.errors import ConfigError, UnavailableError
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.options.declaration import check_options, option
from tidelog.options.kinds import (
    ABOVE_ZERO,
    NOT_ENCRYPTED,
    Choice,
    Duration,
    Flag,
    Integer,
    KeyPlace,
    Names,
    PathKind,
    Range,
    Size,
    WorkerCount,
)
from tidelog.runtime.memory import DEFAULT_MEMORY, LEAST_MEMORY, MemoryParts
from tidelog.state.config import FlushConfig, RestoreConfig
from tidelog.storage.config import StorageConfig
from tidelog.storage.retry_policy import RetryPolicy
from tidelog.table.rocksdb_options import MOST_CACHE, RocksDBConfig

if TYPE_CHECKING:
    from tidelog.runtime.channels.messages import BarrierOrder


DEFAULT_KEY_GROUPS: Final = 128
MAX_KEY_GROUPS: Final = 1 << 16

Mode = Literal["exactly-once", "at-least-once"]
TableKind = Literal["rocksdb", "memory"]
UnalignedMode = Literal["off", "timeout", "always"]


@dataclass(frozen=True, slots=True)
class UnalignedConfig:
    """Whether barriers overtake records, which then are stored with the checkpoint."""

    mode: UnalignedMode = option(
        "timeout",
        Choice(get_args(UnalignedMode)),
        "When barriers overtake records: never, once a checkpoint takes longer than "
        '`unaligned.timeout`, or immediately. In mode "at-least-once" they never do.',
        when="always where checkpoints must be quick under back-pressure; off where in-flight data "
        "must not be stored.",
        aliases=("--unaligned",),
    )
    timeout: float = option(
        1.0,
        Duration(ABOVE_ZERO),
        "How long a checkpoint may take before its barriers overtake.",
        when="Raise it to store fewer records in flight; it counts from the start of a checkpoint.",
        aliases=("--aligned-timeout",),
    )
    overdraft: int = option(
        5,
        Integer(Range(0)),
        "Buffers that may wait in an output beyond its own, for one input that makes much output.",
        when="Raise it for a flat_map that makes many records of one, which else delays barriers.",
    )

    @property
    def order(self) -> "BarrierOrder":
        if self.mode == "off":
            return "aligned"
        return "may-switch" if self.mode == "timeout" else "unaligned"


@dataclass(frozen=True, slots=True)
class JobConfig:
    """How a job runs; every option has a default that suits a laptop.

    Times are seconds and sizes bytes; what each option does: docs/reference/configuration.md.
    """

    parallelism: int = option(
        1,
        Integer(Range(1, MAX_KEY_GROUPS)),
        "Subtasks of each operator.",
        when="As many as there are cores to use for one process; never above `key_groups`.",
    )
    workers: int = option(
        1,
        WorkerCount(Range(1, 256)),
        "Processes of this machine that the subtasks run in, each with its part of `memory`; "
        "`parallelism` is the same number unless it is set.",
        when="auto where one process keeps its core busy; each operator needs as many subtasks.",
    )
    worker_timeout: float = option(
        60.0,
        Duration(ABOVE_ZERO),
        "How long a worker may say nothing before it counts as lost.",
        when="Raise it where one call of a function may take longer.",
    )
    restarts: int = option(
        3,
        Integer(Range(0)),
        "How often in a row `tidelog run` starts a job with workers again from its last "
        "checkpoint after it has failed, with growing pauses; a checkpoint resets the count.",
        when="0 where something else starts the job again.",
    )
    key_groups: int = option(
        DEFAULT_KEY_GROUPS,
        Integer(Range(1, MAX_KEY_GROUPS)),
        "The highest parallelism there can ever be; the first checkpoint fixes it.",
        when="Before the first start of a job that may grow beyond it.",
    )
    mode: Mode = option(
        "exactly-once",
        Choice(get_args(Mode)),
        "What is true of state and output after a failure.",
        when="at-least-once where records may count twice and barriers must never be waited for.",
    )
    changelog: bool = option(
        True,
        Flag(),
        "Whether changes are logged; off, every checkpoint uploads the tables' new files.",
        when="Off where checkpoints are minutes apart.",
    )
    table: TableKind = option(
        "rocksdb",
        Choice(get_args(TableKind)),
        "Where the rows of keyed state lie while the job runs.",
        when="memory for state that surely fits beside everything else in memory.",
    )
    work_dir: Path | None = option(
        None,
        PathKind(),
        "Where tables lie while the job runs; they need no durability.",
        when="Set it to a fast local disk with room for the tables.",
        none="temporary",
    )
    local_recovery: Path | None = option(
        None,
        PathKind(),
        "A directory that outlives the process: segments and table files are kept there too, and "
        "a restart on this machine reads them from it.",
        when="Set it where jobs restart on the same machine and the store is slow or dear to read.",
        none="off",
    )
    encryption_key: str | None = option(
        None,
        KeyPlace(),
        "Where the key is that everything in the store is encrypted with: a file, env:NAME or "
        "aws-kms:KEY. Local tables in `work_dir` are not encrypted.",
        when="Set it from the first start on where the store must not be read by all who can "
        "read its bucket; see docs/guides/encryption.md.",
        none=NOT_ENCRYPTED,
    )
    local_recovery_bytes: int = option(
        32 << 30,
        Size(Range(0)),
        "Most bytes that the copies in `local_recovery` take.",
        when="Set it to the room on that disk.",
    )
    memory: int = option(
        DEFAULT_MEMORY,
        Size(Range(LEAST_MEMORY, MOST_CACHE)),
        "What write buffers, caches, memtables, channels and uploads of the whole process may "
        'take. Python, what user functions keep and tables of kind "memory" come on top.',
        when="Raise it for large state, lower it for small machines.",
    )
    channel_buffers: int = option(
        2,
        Integer(Range(1)),
        "Buffers that a channel holds before its sender waits.",
        when="Raise it where the speed of operators varies; barriers then wait longer.",
    )
    buffer_bytes: int = option(
        1 << 20,
        Size(),
        "Most bytes of memory that a buffer of records takes, fewer where `memory` has no room "
        "for all buffers; a larger record is a buffer of its own.",
        when="Lower it where barriers wait for long work on one buffer.",
    )
    buffer_records: int = option(
        8192,
        Integer(Range(1)),
        "Most records of a buffer.",
        when="Lower it where functions take long for each record.",
    )
    retain: int = option(
        3,
        Integer(Range(1)),
        "Checkpoints kept besides savepoints.",
        when="Raise it to go back further; each keeps the log and files that it names.",
    )
    allow_non_restored_state: tuple[str, ...] = option(
        (),
        Names(),
        "Operators (NAME) that the job no longer has: what the checkpoint holds of them IS LOST. "
        "Those that hold nothing need not be named. And states (NAME/STATE) that an operator has "
        "no longer while it has new ones: their rows stay stored, and are found when they return.",
        when="Once, for the first start of a job that an operator or state was removed from.",
    )
    finish_once: bool = option(
        False,
        Flag(),
        "A job that has read all of its input is finished for good: another start reads nothing. "
        "Otherwise a start continues with what is new, and emits final values again.",
        when="Where another start must do nothing although there is more input.",
    )
    drop_in_flight: bool = option(
        False,
        Flag(),
        "Restore without the records that barriers had overtaken: THEY ARE LOST.",
        when="Once, when their type has changed and they cannot be restored.",
    )
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    unaligned: UnalignedConfig = field(default_factory=UnalignedConfig)
    upload: UploadConfig = field(default_factory=UploadConfig)
    materialize: MaterializeConfig = field(default_factory=MaterializeConfig)
    flush: FlushConfig = field(default_factory=FlushConfig)
    restore: RestoreConfig = field(default_factory=RestoreConfig)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """For `open_store`; what is asked of a store of this machine has a policy of its own."""
    storage: StorageConfig = field(default_factory=StorageConfig)
    rocksdb: RocksDBConfig = field(default_factory=RocksDBConfig)

    def __post_init__(self) -> None:
        check_options(self)
        self.check_parallelism("parallelism", self.parallelism)
        if self.workers > 1 and self.memory < LEAST_MEMORY * self.workers:
            raise ConfigError(
                "option memory",
                expected=f"at least {LEAST_MEMORY >> 20} MiB for each of {self.workers} workers",
                found=f"{self.memory >> 20} MiB in all",
                action="raise it, or use fewer workers",
            )

    @property
    def overtakes(self) -> bool:
        return self.mode == "exactly-once" and self.unaligned.mode != "off"

    @property
    def memory_parts(self) -> MemoryParts:
        return MemoryParts.of(self.memory)

    def table_of(self, *, keyed: bool) -> TableKind:
        # Sources and stateless operators hold little: a memory table costs them no files.
        return self.table if keyed else "memory"

    def of_worker(self) -> "JobConfig":
        """The configuration of one of the workers: a part of each budget."""
        rate = self.materialize.bytes_per_s
        return replace(
            self,
            workers=1,
            memory=self.memory // self.workers,
            materialize=replace(
                self.materialize, bytes_per_s=None if rate is None else rate / self.workers
            ),
        )

    def check_parallelism(self, what: str, parallelism: int) -> None:
        """Raises ConfigError when an operator has no subtask, or one without key groups."""
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


@dataclass(frozen=True, slots=True)
class JobArguments:
    """What `tidelog run` was given that is the job's business, not the runtime's."""

    input: str | None = None
    """Where the data is."""
    output: str | None = None
    """Where results go; None: standard output."""
    include: str = "*"
    """Glob over input file names."""
    follow: bool = False
    """Never end: wait for more input."""
    own: tuple[str, ...] = ()
    """What follows a `--` at the end of the command, for argparse, click or the like."""

    def required_input(self) -> Path:
        """The existing input path; raises ConfigError when it is missing."""
        if not self.input:
            raise ConfigError("--input", expected="a file or directory", action="pass --input PATH")
        path = Path(self.input)
        if not path.exists():
            raise UnavailableError(
                f"--input {self.input}",
                expected="a file or directory",
                found="nothing",
                action="create it or pass another path",
            )
        return path
