"""Workloads as settings of cells, and back.

Invariant: a workload is described by settings of its own, never by a name that could change its
meaning: cells of different sessions are equal when their settings are.
"""

from collections.abc import Mapping
from dataclasses import asdict

from tidelog.bench.embedded.workload import Workload
from tidelog.bench.measurement import Setting


def settings_of(workload: Workload) -> dict[str, Setting]:
    """Keys, bytes per key, skew and draws."""
    return asdict(workload)


def workload_of(settings: Mapping[str, Setting]) -> Workload:
    """The workload that `settings_of` described."""
    return Workload(
        keys=whole(settings, "keys"),
        key_bytes=whole(settings, "key_bytes"),
        skewed=bool(settings["skewed"]),
        draws=whole(settings, "draws"),
    )


def whole(settings: Mapping[str, Setting], name: str) -> int:
    """A setting that is a whole number."""
    value = settings[name]
    assert isinstance(value, int), f"{name} of a cell is {value!r}"
    return value


def number(settings: Mapping[str, Setting], name: str) -> float:
    """A setting that is a number."""
    value = settings[name]
    assert isinstance(value, int | float), f"{name} of a cell is {value!r}"
    return float(value)
