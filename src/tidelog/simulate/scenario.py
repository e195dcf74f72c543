"""Scenarios: which misfortunes a run meets, and how often.

Invariant: a scenario and a seed decide a run alone; every switch has a rate or a share, so that
one more kind of misfortune is one more field.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scenario:
    """Rates are per request or per incarnation, shares per run; all from 0 to 1."""

    name: str
    about: str
    fail: float = 0.0
    """A request never arrives, and its sender hears so."""
    lose_answer: float = 0.0
    """A request takes effect, and its sender hears that it failed."""
    slow: float = 0.0
    """A request or its answer takes up to seconds, so that others overtake it."""
    twice: float = 0.0
    """The client library sends a request twice; the second answer counts."""
    crash: float = 0.0
    """An incarnation is killed."""
    supersede: float = 0.0
    """A new incarnation starts beside one that still runs."""
    partition: float = 0.0
    """A superseded incarnation is cut off from the store for a while, and comes back."""
    skew: float = 0.0
    """Share of runs in which every incarnation has a clock of its own."""
    shuffle: float = 0.5
    """Share of runs in which ready tasks are stepped in random order."""
    threads: float = 0.5
    """Share of runs in which functions run away from the event loop, for a while."""
    retries: float = 0.5
    """Share of runs whose store retries and hedges, as stores of the command line do."""
    changelog: float = 0.8
    """Share of runs with the changelog on."""
    rescale: float = 0.0
    """Share of runs in which every incarnation has another parallelism, and may have the
    changelog on or off."""
    savepoints: float = 0.0
    """Somebody asks an incarnation for savepoints, and stops it with one."""
    local_copies: float = 0.0
    """Share of runs with local recovery; a restart finds the copies, no or damaged ones."""
    sink_fails: float = 0.0
    """A call into a sink's writer fails, before or after its effect."""
    chaos_s: float = 6.0
    """Virtual seconds until all faults stop."""
    rocksdb: bool = False
    """Tables in RocksDB; without it in memory."""


_CALM: Final = Scenario("calm", "no faults: graphs, settings and schedules alone")
_STORE: Final = Scenario(
    "store",
    "requests fail, lose their answers, are slow or arrive twice",
    fail=0.03,
    lose_answer=0.03,
    slow=0.05,
    twice=0.03,
)
_CRASHES: Final = Scenario(
    "crashes",
    "incarnations are killed at any moment and started again",
    crash=0.8,
    slow=0.03,
)
_ZOMBIES: Final = Scenario(
    "zombies",
    "two incarnations on one store; the older one is cut off and comes back",
    lose_answer=0.05,
    slow=0.03,
    supersede=0.7,
    partition=0.7,
    chaos_s=12.0,
)
_RESCALES: Final = Scenario(
    "rescales",
    "every incarnation has another parallelism; the changelog is switched on and off",
    crash=0.8,
    slow=0.03,
    fail=0.01,
    rescale=1.0,
)
_SAVEPOINTS: Final = Scenario(
    "savepoints",
    "savepoints of both formats, jobs that are stopped with one, and crashes meanwhile",
    lose_answer=0.02,
    slow=0.03,
    crash=0.4,
    rescale=0.3,
    savepoints=0.9,
)
_LOCAL: Final = Scenario(
    "local",
    "restarts with local copies that are there, gone or damaged",
    fail=0.02,
    slow=0.03,
    crash=0.9,
    supersede=0.1,
    local_copies=1.0,
)
_EVERYTHING: Final = Scenario(
    "everything",
    "all of it at once, with clocks that differ",
    fail=0.02,
    lose_answer=0.03,
    slow=0.04,
    twice=0.02,
    crash=0.4,
    supersede=0.3,
    partition=0.5,
    skew=0.5,
    sink_fails=0.01,
    rescale=0.3,
    savepoints=0.3,
    local_copies=0.3,
    chaos_s=8.0,
)
_ROCKSDB: Final = Scenario(
    "rocksdb",
    "everything, over RocksDB tables",
    fail=0.02,
    lose_answer=0.03,
    slow=0.04,
    twice=0.02,
    crash=0.4,
    supersede=0.3,
    partition=0.5,
    rocksdb=True,
)

_ALL: Final = (
    _CALM,
    _STORE,
    _CRASHES,
    _ZOMBIES,
    _RESCALES,
    _SAVEPOINTS,
    _LOCAL,
    _EVERYTHING,
    _ROCKSDB,
)
SCENARIOS: Final = {scenario.name: scenario for scenario in _ALL}
"""By name, in the order in which seeds take turns."""
