"""Scenarios: which misfortunes a run meets, and how often.

Invariant: a scenario and a seed decide a run alone; every switch has a rate or a share, so that
one more kind of misfortune is one more field.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from tests.simulator.jobs.event_time import latecomers, server_logs
from tests.simulator.jobs.evolution import evolving
from tests.simulator.jobs.fixed import shop, visits, with_rules
from tests.simulator.jobs.joins import joins
from tests.simulator.jobs.nightly import nightly
from tests.simulator.jobs.plan import JobPlan, lifecycle, make_plan, relay, wide
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig, UnalignedConfig
from tidelog.state.config import FlushConfig, RestoreConfig
from tidelog.storage.retry_policy import RetryPolicy
from tidelog.table.rocksdb_options import RocksDBConfig


@dataclass(frozen=True, slots=True)
class Scenario:
    """Rates are per request or per incarnation, shares per run; all from 0 to 1."""

    name: str
    about: str
    requests: float = 0.0
    """Each misfortune of a request: it never arrives; it takes effect, and its sender hears that it
    failed; it or its answer takes up to seconds, so that others overtake it; it arrives twice."""
    crash: float = 0.0
    """An incarnation is killed."""
    supersede: float = 0.0
    """A new incarnation starts beside one that still runs, and is cut off from the store for a
    while, as often as not."""
    skew: float = 0.0
    """An incarnation has a clock of its own."""
    rescale: float = 0.0
    """Share of runs in which every incarnation has another parallelism, and may have the
    changelog on or off."""
    savepoints: float = 0.0
    """Somebody asks an incarnation for savepoints, and stops it with one."""
    local_copies: float = 0.0
    """Share of runs with local recovery; a restart finds the copies, no or damaged ones."""
    sink_fails: float = 0.0
    """A call into a sink's writer fails, before or after its effect."""
    suspend: float = 0.0
    """An incarnation stands still at one step, often of its start, while the operator starts
    another one, and goes on later."""
    workers: float = 0.0
    """Share of incarnations whose subtasks run in two or three workers."""
    loses_objects: bool = False
    """The store loses objects now and then while a job runs; incarnations end by savepoints."""
    drains: float = 0.0
    """Share of the stops that drain the job."""
    moves: float = 0.0
    """Share of the jobs ended behind a savepoint that go on in another store, with their output."""
    clones: int = 0
    """Jobs that begin at savepoints of another one, in stores and with outputs of their own."""
    endless: bool = False
    """Sources never end; the operator drains the job once it has written what it must."""
    nights: bool = False
    """The input grows each time when the job has ended."""
    sinks_on_disk: bool = False
    """Sinks are tidelog's own as well: files and SQLite."""
    jobs: Callable[[Random], JobPlan] = make_plan
    """Which jobs are drawn."""
    chaos_s: float = 6.0
    """Virtual seconds until all faults stop."""
    rocksdb: bool = False
    """Tables in RocksDB; without it in memory."""
    begins_early: float = 0.0
    """Share of incarnations that handle records before their tables are here; these are in small
    blocks and files."""
    file_s: float = 0.0
    """Virtual seconds until the whole of a table's file arrives at such an incarnation, at most."""
    damages: float = 0.0
    """A part of a table's file arrives with a bit changed."""
    full_disks: float = 0.0
    """A part of a table's file cannot be written, for the disk is full."""


_FAULTS: Final = Scenario("", "", requests=0.03, crash=0.4, supersede=0.3)
"""What every scenario of all faults at once has."""
_RESTARTS: Final = Scenario(
    "", "", requests=0.02, crash=0.6, supersede=0.1, rescale=0.5, savepoints=0.2
)
"""What jobs as users write them meet: kills, rescales and a store that is slow."""
_JOBS: Final[tuple[tuple[str, str, Callable[[Random], JobPlan]], ...]] = (
    (
        "servers",
        "event time over many splits, of which some are behind, ahead or quiet",
        server_logs,
    ),
    ("joins", "two streams joined by interval, window or newest row", joins),
    ("rules", "broadcast rules, whose order counts", with_rules),
    (
        "evolution",
        "types of keys and values change between starts, and an operator with state comes and goes",
        evolving,
    ),
)
"""Scenarios of nothing but such jobs: restarts in changing shapes."""

_ALL: Final = (
    Scenario("calm", "no faults: graphs, settings and schedules alone"),
    Scenario("store", "requests fail, lose their answers, are slow or arrive twice", requests=0.04),
    Scenario(
        "crashes",
        "incarnations are killed at any moment and started again",
        requests=0.02,
        crash=0.8,
    ),
    Scenario(
        "zombies",
        "two incarnations on one store; the older one is cut off and comes back",
        requests=0.04,
        supersede=0.7,
        chaos_s=12.0,
    ),
    Scenario(
        "rescales",
        "every incarnation has another parallelism; the changelog is switched on and off",
        crash=0.8,
        requests=0.02,
        rescale=1.0,
    ),
    Scenario(
        "savepoints",
        "savepoints of both formats, jobs that are stopped with one, and crashes meanwhile",
        requests=0.02,
        crash=0.4,
        rescale=0.3,
        savepoints=0.9,
    ),
    Scenario(
        "local",
        "restarts with local copies that are there, gone or damaged",
        requests=0.02,
        crash=0.9,
        supersede=0.1,
        local_copies=1.0,
    ),
    Scenario(
        "losses",
        "the store loses objects under jobs that are stopped with savepoints and rescaled",
        rescale=0.5,
        savepoints=1.0,
        workers=0.3,
        local_copies=0.2,
        loses_objects=True,
    ),
    replace(
        _FAULTS,
        name="everything",
        about="all of it at once, with clocks that differ",
        skew=0.5,
        sink_fails=0.01,
        rescale=0.3,
        savepoints=0.3,
        local_copies=0.3,
    ),
    replace(_FAULTS, name="rocksdb", about="everything, over RocksDB tables", rocksdb=True),
    replace(
        _FAULTS,
        name="hydration",
        about="incarnations that handle records while their tables arrive, slow, damaged or never",
        rocksdb=True,
        begins_early=0.8,
        file_s=8.0,
        chaos_s=12.0,
        crash=0.7,
        rescale=0.4,
        damages=0.01,
        full_disks=0.005,
        local_copies=0.2,
        savepoints=0.2,
        jobs=wide,
    ),
    Scenario(
        "held",
        "processes stand still at any step, also of their start, and go on beside a successor",
        suspend=0.8,
        crash=0.1,
        requests=0.01,
        sinks_on_disk=True,
    ),
    Scenario(
        "disk",
        "files and SQLite as sinks, on a disk whose syncs fail",
        crash=0.5,
        supersede=0.2,
        rescale=0.3,
        sink_fails=0.1,
        sinks_on_disk=True,
    ),
    *(replace(_RESTARTS, name=name, about=about, jobs=jobs) for name, about, jobs in _JOBS),
    replace(
        _RESTARTS,
        name="latecomers",
        about="windows with records that are late: each fires once",
        crash=0.9,
        rescale=1.0,
        jobs=latecomers,
    ),
    replace(
        _RESTARTS,
        name="shop",
        about="a union of rows, tuples and dicts over values, maps and sums, time to live included",
        suspend=0.2,
        sinks_on_disk=True,
        jobs=shop,
    ),
    replace(
        _RESTARTS,
        name="relay",
        about="stateless jobs, mostly at least once: no record is lost",
        sink_fails=0.02,
        sinks_on_disk=True,
        jobs=relay,
    ),
    replace(
        _RESTARTS,
        name="expiry",
        about="endless sources over state that expires and timers of processing time, and a drain",
        suspend=0.2,
        endless=True,
        jobs=visits,
    ),
    replace(
        _RESTARTS,
        name="lifecycle",
        about="jobs that are drained, moved to another store, or cloned from a savepoint there",
        supersede=0.0,  # nothing fences a job that lives on in the store that it was moved from
        savepoints=1.0,
        drains=0.2,
        moves=0.7,
        clones=2,
        jobs=lifecycle,
    ),
    replace(
        _FAULTS,
        name="workers",
        about="two or three workers instead of one process, of which one is lost now and then",
        workers=0.8,
        rescale=0.5,
        savepoints=0.2,
    ),
    replace(
        _FAULTS,
        name="nights",
        about="jobs that end, whose input grows, and that are started again",
        rescale=0.5,
        workers=0.2,
        local_copies=0.2,
        nights=True,
        jobs=nightly,
        chaos_s=10.0,
    ),
)
SCENARIOS: Final = {scenario.name: scenario for scenario in _ALL}
"""All scenarios by name, in the order in which seeds take turns."""


CHANGELOG: Final = 0.8
"""Share of jobs with the changelog on."""
RETRY: Final = RetryPolicy(
    attempt_timeout=1.0, hedge_after=0.25, first_backoff=0.02, max_backoff=0.4, deadline=3.0
)
_SMALL_BLOCKS: Final = RocksDBConfig(
    block_bytes=256, target_file_bytes=64 << 10, write_buffer_bytes=64 << 10
)
_NEVER: Final = 10**9


def make_settings(rng: Random, scenario: Scenario, plan: JobPlan, work_dir: Path) -> JobConfig:
    settings = _make_settings(rng, scenario, plan, work_dir)
    if not scenario.loses_objects:
        return settings
    looks = rng.choice((0.3, 2.0, None))
    return replace(settings, checkpoint=replace(settings.checkpoint, object_check_interval=looks))


def _make_settings(rng: Random, scenario: Scenario, plan: JobPlan, work_dir: Path) -> JobConfig:
    return JobConfig(
        parallelism=plan.parallelism,
        mode=plan.mode,
        key_groups=rng.choice((4, 7, 16)),
        changelog=rng.random() < CHANGELOG,
        table="rocksdb" if scenario.rocksdb else "memory",
        work_dir=work_dir,
        channel_buffers=rng.choice((1, 2, 5)),
        retain=rng.choice((1, 2, 3)),
        # The operator takes a job for done that has been drained.
        finish_once=scenario.endless or scenario.drains > 0,
        checkpoint=CheckpointConfig(
            interval=rng.choice((0.2, 0.5, 1.0)),
            # A job that stops with a savepoint waits for it: with busy threads 0.3 s are too few.
            timeout=rng.choice((3.0 if scenario.drains else 0.3, 3.0, 10.0)),
            min_pause=rng.choice((0.0, 0.1)),
            tolerable_failures=_NEVER,
        ),
        upload=UploadConfig(
            segment_bytes=rng.choice((300, 2000, 100_000)),
            max_age=rng.choice((0.05, 0.25, 1.0)),
            linger=rng.choice((0.0, 0.01)),
            inline_bytes=rng.choice((0, 300, 20_000)),
            # Copies of segments on their way count too: less would let one row through at a time.
            limit_bytes=rng.choice((1000, 5000, 1_000_000)),
            concurrency=rng.choice((1, 2, 4)),
        ),
        materialize=MaterializeConfig(
            interval=rng.choice((0.1, 0.4) if scenario.begins_early else (0.7, 2.0, 5.0)),
            log_factor=rng.choice((1.0, 4.0)),
            min_log_bytes=rng.choice((500, 100_000)),
            tolerable_failures=_NEVER,
            retry_pause=0.1,
        ),
        unaligned=UnalignedConfig(
            mode=rng.choice(("off", "timeout", "always")),
            timeout=rng.choice((0.01, 0.2, 2.0)),
            overdraft=rng.choice((0, 1, 5)),
        ),
        flush=FlushConfig(
            rows=rng.choice((3, 20, 1000)),
            max_age=rng.choice((0.05, 0.3, 1.0)),
            cache_bytes=rng.choice((0, 500, None)),
        ),
        restore=RestoreConfig(
            concurrency=rng.choice((1, 8)),
            read_ahead_bytes=rng.choice((200, 1 << 20)),
            replay_bytes=rng.choice((200, 1 << 20)),
            whole_bytes=0,
        ),
        rocksdb=_SMALL_BLOCKS if scenario.begins_early else RocksDBConfig(),
    )
