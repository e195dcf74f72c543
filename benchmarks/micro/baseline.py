"""Baselines: what the micro-benchmarks took, in yardsticks, so that the machine's speed drops out.

Invariants: a cost is the shortest time of a benchmark in one process divided by the yardstick timed
around it; costs are judged only against those of the same processor and Python; a difference counts
when it is larger than `TOLERANCE`, no run of one side reaches into the other's, and there are so
many runs that this happens by chance in at most one of `1 / CHANCE` benchmarks.
"""

import math
import re
import statistics
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.errors import ConfigError
from tidelog_bench.session import environment

DIRECTORY: Final = Path(__file__).parent / "baselines"
TOLERANCE: Final = 0.10
"""What a yardstick of other work cannot divide out: caches, disks, the memory of a process."""

CHANCE: Final = 0.05

Costs = dict[str, list[float]]


class Baseline(msgspec.Struct, frozen=True):
    """The costs of all benchmarks in some runs of one revision."""

    machine: dict[str, Any]
    versions: dict[str, str]
    revision: str | None
    date: str
    load: float
    """Load average when the runs ended; their own share of it is 1."""
    costs: Costs
    """Yardsticks by benchmark; one per run."""
    seconds: dict[str, float]
    """The shortest time of each, as people understand it; not compared."""

    @property
    def kind(self) -> str:
        """What has to be equal for a comparison: the processor and Python's minor version."""
        minor = ".".join(self.versions["python"].split(".")[:2])
        return re.sub(r"[^a-z0-9.]+", "-", f"{self.machine['cpu']} python {minor}".lower())


class Change(msgspec.Struct, frozen=True):
    """One benchmark, before and now."""

    name: str
    seconds: float
    """Now."""
    ratio: float | None
    """Median now over median before; None for a new benchmark."""
    low: float | None
    high: float | None
    """The ratio at its most favourable and at its least."""
    verdict: str
    """`slower`, `faster`, `same`, `new`, or `too few` runs to tell."""


def combined(runs: Iterable[Mapping[str, Any]]) -> Baseline:
    """All runs of today's code on this machine, from what pytest-benchmark wrote of each."""
    costs: Costs = {}
    shortest: dict[str, float] = {}
    for entry in (entry for document in runs for entry in document["benchmarks"]):
        module, _, test = entry["fullname"].rpartition("/")[2].partition(".py::test_")
        name, seconds = f"{module.removeprefix('test_')}: {test}", entry["stats"]["min"]
        costs.setdefault(name, []).append(round(seconds / entry["extra_info"]["yardstick_s"], 5))
        shortest[name] = min(seconds, shortest.get(name, seconds))
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Baseline(**environment.here(), date=date, costs=costs, seconds=shortest)


def changes(before: Baseline, now: Baseline) -> list[Change]:
    """Every benchmark of now, against before."""
    return [
        _change(name, now.seconds[name], before.costs.get(name), costs)
        for name, costs in now.costs.items()
    ]


def _change(name: str, seconds: float, before: list[float] | None, now: list[float]) -> Change:
    if not before:
        return Change(name, seconds, None, None, None, "new")
    ratio = statistics.median(now) / statistics.median(before)
    low, high = min(now) / max(before), max(now) / min(before)
    verdict = "same"
    if 2 / math.comb(len(now) + len(before), len(now)) > CHANCE:
        verdict = "too few"
    elif low > 1 and ratio > 1 + TOLERANCE:
        verdict = "slower"
    elif high < 1 and ratio < 1 / (1 + TOLERANCE):
        verdict = "faster"
    return Change(name, seconds, ratio, low, high, verdict)


def load(kind: str) -> Baseline | None:
    """The baseline of a kind of machine, if there is one; raises ConfigError."""
    path = DIRECTORY / f"{kind}.json"
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except (OSError, msgspec.DecodeError) as cause:
        raise ConfigError(
            f"baseline {path}",
            expected="what `just bench-micro-baseline` wrote",
            found=str(cause),
            action="renew it on this machine, or bring it back with git",
        ) from cause


def store(baseline: Baseline) -> Path:
    """Write it in place of the one of its kind."""
    path = DIRECTORY / f"{baseline.kind}.json"
    data = msgspec.json.encode(baseline, order="sorted")
    path.write_bytes(msgspec.json.format(data, indent=1) + b"\n")
    return path
