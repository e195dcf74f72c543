"""State without a key comes back where it belongs, whatever the number of subtasks."""

from typing import Any

import msgspec
import pytest

from tidelog.checkpoint.manifest import OperatorPiece, OperatorState, SubtaskState
from tidelog.errors import StateSchemaError
from tidelog.ids import SeqNo
from tidelog.state.key_groups import range_of
from tidelog.state.operator_state import OperatorStateKind, OperatorStates, union_in_part
from tidelog.state.restore.redistribute import redistribute, redistribute_operator_state


def subtask(index: int, count: int, *pieces: OperatorPiece, finished: bool = False) -> SubtaskState:
    owned = range_of(index, 8, count)
    return SubtaskState(
        *(index, owned.first, owned.last, SeqNo(0), "memory"),
        operator_state=pieces,
        finished=finished,
    )


def piece(kind: OperatorStateKind, *values: Any) -> OperatorPiece:
    return OperatorPiece("op", "state", kind, tuple(map(msgspec.msgpack.encode, values)))


def operator(*subtasks: SubtaskState) -> OperatorState:
    return OperatorState("op", 8, (), subtasks)


def after(old: OperatorState, parallelism: int) -> list[list[Any]]:
    """What each subtask holds after a restart."""
    dealt = redistribute_operator_state(old, redistribute(old, parallelism))
    assert len(dealt.subtasks) == parallelism
    return [
        [msgspec.msgpack.decode(e) for p in s.operator_state for e in p.entries]
        for s in dealt.subtasks
    ]


def test_a_captured_state_does_not_change_behind_the_barrier() -> None:
    states = OperatorStates()
    rules = states.broadcast("op", "rules")
    rules["a"] = 1
    captured = states.capture()
    rules["a"] = 2
    assert dict(OperatorStates(captured).broadcast("op", "rules")) == {"a": 1}
    assert dict(OperatorStates(states.capture()).broadcast("op", "rules")) == {"a": 2}


def test_a_state_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(StateSchemaError, match=r"(?s)'state' of operator 'op'.*a list state"):
        OperatorStates((piece("list", 1),)).broadcast("op", "state")


def test_a_value_that_cannot_be_stored_names_its_state() -> None:
    states = OperatorStates()
    rules, parts = states.broadcast("op", "rules"), states.listed("op", "parts")
    with pytest.raises(StateSchemaError, match="broadcast state 'rules' of operator 'op'"):
        rules["a"] = object()
    with pytest.raises(StateSchemaError, match="list state 'parts' of operator 'op'"):
        parts.update([1, object()])
    assert dict(rules) == {} and list(parts) == []


def test_a_broadcast_state_is_taken_from_a_running_subtask() -> None:
    old = operator(
        subtask(0, 2, piece("broadcast", ["a", 1]), finished=True),
        subtask(1, 2, piece("broadcast", ["a", 2])),
    )
    assert after(old, 2) == [[["a", 2]]] * 2
    assert after(old, 3) == [[["a", 2]]] * 3


def test_a_union_of_which_a_part_finished_is_a_reason_against_the_checkpoint() -> None:
    running, done = subtask(0, 2, piece("union", 1)), subtask(1, 2, piece("union"), finished=True)
    assert "'state' of operator 'op': subtask 1 finished" in (
        union_in_part([operator(running, done)]) or ""
    )
    both = operator(msgspec.structs.replace(running, finished=True), done)
    assert union_in_part([both, operator(running)]) is None
    lists = operator(subtask(0, 2, piece("list", 1)), subtask(1, 2, finished=True))
    assert union_in_part([lists]) is None
