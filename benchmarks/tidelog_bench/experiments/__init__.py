"""All experiments by name, in a module each or in one for those that are alike.

Invariant: nothing heavy is imported before a trial runs: Spark and the peers live in their
measure functions.
"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Final

from tidelog.errors import ConfigError
from tidelog_bench.experiment import Experiment

_PLACES: Final = (
    *("checkpoints", "restore", "restart", "throughput", "unaligned", "fanout", "verify"),
    *("spark_commit", "spark_restore", "peers", "peers:EVENTS", "stability", "bill"),
)
"""Modules with their `EXPERIMENT`, or MODULE:NAME; in the order of `tidelog bench list`, and of a
session.
"""
RENAMED: Final = {
    "checkpoint-duration": "checkpoints",
    "checkpoint-size": "checkpoints",
    "overhead": "checkpoints",
    "restore-phases": "restore",
    "rescale": "restore",
    "spark-bill": "spark-commit",
}
"""Names that commands and sessions of earlier versions have, and where their figures are now."""


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments, in the order in which they are run."""
    found = {}
    for place in _PLACES:
        module, _, name = place.partition(":")
        experiment = getattr(import_module(f"{__name__}.{module}"), name or "EXPERIMENT")
        found[experiment.name] = experiment
    return found


def chosen(names: Iterable[str]) -> list[Experiment]:
    """The experiments with these names; a group's name, or `all`, stands for its experiments,
    unless one of them has that name.

    Raises ConfigError for a name that is neither.
    """
    known = experiments()
    picked: dict[str, Experiment] = {}
    for name in names:
        now = RENAMED.get(name, name)
        one = [known[now]] if now in known else None
        found = {e.name: e for e in one or known.values() if now in (e.name, e.group, "all")}
        if not found:
            raise ConfigError(
                f"experiment {name}",
                expected="a name or a group of `tidelog bench list`",
                found=name,
                action="see `tidelog bench list`",
            )
        picked |= found
    return list(picked.values())
