"""How much a run of tests tries: `TIDELOG_DEEP=1` tries all of it, as `just deep` does.

Every property is proved in every run. What a deep run adds is proofs of the same by other means:
combinations of what is tried one by one or pair by pair otherwise, further kinds of damage and of
queries, more examples, more kills, more seeds. `only_in_depth` leaves out a test and names the one
that proves the same in every run.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from operator import getitem
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

VARIABLE = "TIDELOG_DEEP"
DEEP = os.environ.get(VARIABLE) == "1"


def more_in_depth(usual: T, deep: T) -> T:
    return deep if DEEP else usual


def only_in_depth(reason: str) -> pytest.MarkDecorator:
    """Leaves a test out of ordinary runs; `reason` names the one that proves the same there."""
    return pytest.mark.skipif(not DEEP, reason=f"{VARIABLE}=1 runs it; else {reason}")


def one_by_one(**parameters: Sequence[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """A test with all combinations of values; outside of deep runs with so few that each value is
    in one. Values may have names, as with `in_pairs`.
    """
    return _parametrized(parameters, meeting=1)


def in_pairs(**parameters: Sequence[Any] | Mapping[str, Any]) -> pytest.MarkDecorator:
    """A test with all combinations of values; outside of deep runs with so many that any two meet.

    Values may have names: `in_pairs(changelog={"log": True, "tables": False}, parallelism=[1, 3])`.
    """
    return _parametrized(parameters, meeting=2)


def _parametrized(
    parameters: Mapping[str, Sequence[Any] | Mapping[str, Any]], meeting: int
) -> pytest.MarkDecorator:
    named = [
        list(values.items()) if isinstance(values, Mapping) else [(_name(v), v) for v in values]
        for values in parameters.values()
    ]
    chosen = combined(*named, meeting=meeting)
    return pytest.mark.parametrize(
        tuple(parameters),
        [tuple(value for _, value in case) for case in chosen],
        ids=["-".join(name for name, _ in case) for case in chosen],
    )


def combined(*parameters: Sequence[Any], meeting: int) -> list[tuple[Any, ...]]:
    """All combinations; outside of deep runs so many that any `meeting` values meet in one."""
    cases = list(product(*(range(len(values)) for values in parameters)))
    chosen = cases if DEEP else covering(cases, meeting)
    return [tuple(map(getitem, parameters, case)) for case in chosen]


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value))


def covering(cases: Sequence[tuple[int, ...]], meeting: int) -> list[tuple[int, ...]]:
    """A few of the cases: so many values that meet in one of them all meet in one of these."""

    def meetings(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(case), meeting))

    missing = set().union(*map(meetings, cases))
    chosen = []
    while missing:
        best = max(cases, key=lambda case: len(meetings(case) & missing))
        missing -= meetings(best)
        chosen.append(best)
    return chosen
