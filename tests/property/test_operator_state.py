"""Operator state through any sequence of shapes: every subtask has all of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from tests.property.profiles import looking
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.ids import SeqNo
from tidelog.runtime.restore.assign import redistribute_operator_state
from tidelog.state.key_groups import range_of
from tidelog.state.operator_state import OperatorStates

KEY_GROUPS = 8


@dataclass(frozen=True)
class Life:
    """One incarnation: how many subtasks it has, and what all of them learn."""

    parallelism: int
    rules: dict[str, int]
    completes: bool
    """Whether this run completes a checkpoint; if not, the next run restores what this one did."""


lives = st.builds(
    Life,
    parallelism=st.integers(1, 5),
    rules=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=2),
    completes=st.sampled_from((True, True, True, False)),
)


def shaped(parallelism: int) -> OperatorState:
    owned = [range_of(at, KEY_GROUPS, parallelism) for at in range(parallelism)]
    subtasks = (
        SubtaskState(at, groups.first, groups.last, SeqNo(0), "memory")
        for at, groups in enumerate(owned)
    )
    return OperatorState("rates", KEY_GROUPS, (), tuple(subtasks))


def checkpoint(states: Sequence[OperatorStates]) -> OperatorState:
    operator = shaped(len(states))
    subtasks = (
        msgspec.structs.replace(subtask, operator_state=held.capture())
        for subtask, held in zip(operator.subtasks, states, strict=True)
    )
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


@looking(80)
@given(history=st.lists(lives, min_size=1, max_size=6))
def test_no_shape_loses_what_an_operator_keeps_without_keys(history: list[Life]) -> None:
    rules: dict[str, int] = {}
    stored = shaped(1)
    for life in history:
        dealt = redistribute_operator_state(stored, shaped(life.parallelism))
        states = [OperatorStates(subtask.operator_state) for subtask in dealt.subtasks]
        if not life.completes:
            continue
        maps = [held.broadcast("rates", "rules") for held in states]
        assert all(dict(one) == rules for one in maps)
        rules |= life.rules
        for known in maps:
            known.update(life.rules)
        stored = checkpoint(states)
