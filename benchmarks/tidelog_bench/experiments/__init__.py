"""All experiments by name; a module per measurement, each with its `EXPERIMENTS`.

Invariant: nothing heavy is imported before a trial runs: Spark and the peers live in their
measure functions.
"""

from functools import cache
from importlib import import_module
from typing import Final

from tidelog.errors import ConfigError
from tidelog_bench.experiment import Experiment

_MODULES: Final[tuple[str, ...]] = (
    "checkpoints",
    "replay",
    "restore_phases",
    "resources",
    "throughput",
    "unaligned",
    "fanout",
    "spark_commit",
    "spark_restore",
    "spark_bill",
    "peers",
    "rescale",
)
"""In the order of `tidelog bench list`, and of a session."""


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments, in the order in which they are run."""
    found: dict[str, Experiment] = {}
    for module in _MODULES:
        for experiment in import_module(f"{__name__}.{module}").EXPERIMENTS:
            found[experiment.name] = experiment
    return found


def chosen(names: tuple[str, ...]) -> list[Experiment]:
    """The experiments with these names; a group's name, or `all`, stands for its experiments.

    Raises ConfigError for a name that is neither.
    """
    known = experiments()
    picked: dict[str, Experiment] = {}
    for name in names:
        found = [
            experiment
            for experiment in known.values()
            if name in (experiment.name, experiment.group, "all")
        ]
        if not found:
            raise ConfigError(
                f"experiment {name}",
                expected="a name or a group of `tidelog bench list`",
                found=name,
                action="see `tidelog bench list`",
            )
        picked |= {experiment.name: experiment for experiment in found}
    return list(picked.values())
