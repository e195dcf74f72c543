"""What decides the meaning of an operator's rows and is in none of them, stored beside them. Pure.

Invariant: facts are compared by name, where checkpoint and job both have one: operators with
functions of the user have none.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tidelog.checkpoint.manifest import OperatorState
from tidelog.errors import StateSchemaError

REDUCTION: Final = "reduction"
TIME_MODE: Final = "time mode"
LEFT: Final = "left stream"
"""The names of all operators in front of the left stream of a join."""
RIGHT: Final = "right stream"
_UNTIMED: Final = "none"
"""The time mode in which there are no timers, and which may become any other."""
_WAIVED: Final = "$meaning"
"""The state to name in --allow-non-restored-state where rows are right under another meaning."""
_SEPARATOR: Final = ": "
_BETWEEN: Final = ", "

Facts = Mapping[str, str]


def of_sides(left: Iterable[str], right: Iterable[str]) -> Facts:
    """The facts of an operator of two streams, by the names of the operators in front of each."""
    return {LEFT: _BETWEEN.join(sorted(left)), RIGHT: _BETWEEN.join(sorted(right))}


def stored_meaning(facts: Facts) -> tuple[str, ...]:
    """As a checkpoint has it."""
    return tuple(f"{name}{_SEPARATOR}{fact}" for name, fact in facts.items())


def check_meaning(operator: OperatorState, facts: Facts, allowed: Collection[str]) -> None:
    """Raises StateSchemaError where rows that mean one thing would be read as another, unless
    `allowed`, the state that may be dropped, has `OPERATOR/$meaning`.
    """
    if f"{operator.id}/{_WAIVED}" in allowed:
        return
    stored_facts: dict[str, str] = {}
    for text in operator.meaning:
        name, _, fact = text.partition(_SEPARATOR)
        stored_facts[name] = fact
    common = stored_facts.keys() & facts.keys()
    for name in sorted(common - {LEFT, RIGHT}):
        before, now = stored_facts[name], facts[name]
        if before != now and (name, before) != (TIME_MODE, _UNTIMED):
            raise _changed(operator.id, f"{name} {before}", f"{name} {now}", "change it back")
    if common >= {LEFT, RIGHT} and _swapped(stored_facts, facts):
        raise _changed(
            operator.id,
            f"a left stream after {stored_facts[LEFT]} and a right one after {stored_facts[RIGHT]}",
            "the two streams swapped: records would meet those of their own stream",
            "swap them back, or give the operators in front of them their names back",
        )


def _swapped(before: Facts, after: Facts) -> bool:
    """Whether each side is more like the other one was: operators before them may come and go."""
    old_left, old_right = set(before[LEFT].split(_BETWEEN)), set(before[RIGHT].split(_BETWEEN))
    new_left, new_right = set(after[LEFT].split(_BETWEEN)), set(after[RIGHT].split(_BETWEEN))
    same = len(old_left & new_left) + len(old_right & new_right)
    return len(old_left & new_right) + len(old_right & new_left) > same


def _changed(operator: str, before: str, now: str, action: str) -> StateSchemaError:
    return StateSchemaError(
        f"state of operator {operator!r}",
        expected=f"{before}, as the checkpoint has it",
        found=now,
        action=f"{action}; or give the operator another name= and drop what it has with "
        f"--allow-non-restored-state {operator} (JobConfig.allow_non_restored_state); or, where "
        "its rows are right all the same, go on with them by --allow-non-restored-state "
        f"'{operator}/{_WAIVED}'",
        retry_safe=True,
    )
