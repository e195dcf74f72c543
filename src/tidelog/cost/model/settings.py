"""How a job is run: what an estimate varies and a plan searches.

Invariants: settings of the runtime have the runtime's own types and defaults; a process is one job
with one store, as the embedded runtime has it, and processes share the work evenly.
"""

from dataclasses import dataclass, field, replace
from math import inf

from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.schedule import Schedule
from tidelog.errors import require
from tidelog.materialize.config import MaterializeConfig
from tidelog.state.config import FlushConfig


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
    checkpoint_interval: float = Schedule().interval
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
        enough = self.parallelism >= self.processes
        require("parallelism", self.parallelism, enough, f"{self.processes} (processes) or more")
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
    def keyed_per_process(self) -> float:
        """Subtasks with keyed state in one process."""
        return self.parallelism / self.processes

    @property
    def sources_per_process(self) -> float:
        """Subtasks of sources in one process."""
        return (self.parallelism if self.sources is None else self.sources) / self.processes

    def with_materialization(self, interval: float, replay_target: float) -> "Settings":
        """The same with another materialization interval and replay target."""
        config = replace(self.materialize, interval=interval, replay_target=replay_target)
        return replace(self, materialize=config)
