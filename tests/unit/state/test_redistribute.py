"""Every key group, every transaction and all state without a key find their owners, whatever
the number of subtasks. Key groups partition the keys, and subtasks the key groups."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.invariants import manifest_violations
from tidelog.checkpoint.manifest import (
    AheadOfWatermark,
    Author,
    Checkpoint,
    MaterializationRef,
    OperatorPiece,
    OperatorState,
    StateInfo,
    SubtaskState,
)
from tidelog.errors import StateSchemaError
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.runtime.restore.assign import redistribute, redistribute_operator_state
from tidelog.state.key_groups import decode_key, encode_key, key_group, range_of, subtask_of
from tidelog.state.operator_state import OperatorStates

GROUPS = 12
COUNT = StateInfo(0, "count", "value", ("count bigint",))
SPLITS = StateInfo(0, "$splits", "splits", ("msgpack",))


def subtask(index: int, parallelism: int, **fields: Any) -> SubtaskState:
    """One that materialized its changes below 40 + index and logged up to 50 + index."""
    owned = range_of(index, GROUPS, parallelism)
    upto, seqno = SeqNo(40 + index), SeqNo(50 + index)
    segment = f"segments/00000001-p-{index:010d}.seg"
    settings: dict[str, Any] = {
        "seqno": seqno,
        "table": "rocksdb",
        "materialization": MaterializationRef(MaterializationId(1), f"d-{index}", 9, upto, 99),
        "log": (LogRange(segment, 44, 100, upto, seqno, KeyGroup(0), KeyGroup(11)),),
        "watermark": 1000 + index,
        "transactions": (b"tx-%d" % index,),
        **fields,
    }
    return SubtaskState(index, owned.first, owned.last, **settings)


def operator(*subtasks: SubtaskState, state: StateInfo = COUNT) -> OperatorState:
    return OperatorState("op", GROUPS, (state,), subtasks)


def of(parallelism: int, **fields: Any) -> OperatorState:
    return operator(*(subtask(i, parallelism, **fields) for i in range(parallelism)))


def checkpoint(state: OperatorState) -> Checkpoint:
    author = Author(Generation(0), "a")
    return Checkpoint(Slot(1), author, CheckpointId(1), 0, "job", (state,))


def owners(state: OperatorState) -> Counter[tuple[int, int]]:
    """How often (who held it, key group) occurs in what the new subtasks inherit."""
    return Counter(
        (layer.subtask, group)
        for heir in state.subtasks
        for layer in heir.inherited
        for group in range(layer.first_key_group, layer.last_key_group + 1)
    )


@given(old=st.integers(1, GROUPS), new=st.integers(1, GROUPS))
def test_every_key_group_of_every_old_subtask_has_one_heir_who_owns_it(old: int, new: int) -> None:
    before = of(old)
    after = redistribute(before, new, "memory")
    held = {
        (s.index, group)
        for s in before.subtasks
        for group in range(s.first_key_group, s.last_key_group + 1)
    }
    assert owners(after) == Counter(held)
    assert manifest_violations(checkpoint(after)) == []
    assert [s.table for s in after.subtasks] == ["memory"] * new


@given(old=st.integers(1, GROUPS), new=st.integers(1, GROUPS), then=st.integers(1, GROUPS))
def test_a_second_redistribution_hands_on_what_the_first_one_did(
    old: int, new: int, then: int
) -> None:
    first = redistribute(of(old), new, "memory")
    twice = redistribute(first, then)
    once = redistribute(of(old), then, "memory")
    assert owners(twice) == owners(once)
    assert manifest_violations(checkpoint(twice)) == []


@given(old=st.integers(1, GROUPS), new=st.integers(1, GROUPS))
def test_every_transaction_has_one_heir_and_stays_with_a_subtask_of_its_number(
    old: int, new: int
) -> None:
    after = redistribute(of(old), new)
    dealt = Counter(t for heir in after.subtasks for t in heir.transactions)
    assert dealt == Counter(b"tx-%d" % index for index in range(old))
    for heir in after.subtasks[:old]:
        assert b"tx-%d" % heir.index in heir.transactions


def test_key_groups_that_were_further_stay_so_through_every_shape() -> None:
    firing = operator(
        subtask(0, 3, watermark=10, advancing=30),
        subtask(1, 3, watermark=20),
        subtask(2, 3, watermark=10),
    )
    one = redistribute(firing, 1).subtasks[0]
    assert one.watermark == 10
    assert one.ahead == (AheadOfWatermark(0, 3, 30), AheadOfWatermark(4, 7, 20))
    again = redistribute(operator(one), 2)
    assert [s.ahead for s in again.subtasks] == [
        (AheadOfWatermark(0, 3, 30), AheadOfWatermark(4, 5, 20)),
        (AheadOfWatermark(6, 7, 20),),
    ]
    later = operator(msgspec.structs.replace(one, watermark=25))
    assert redistribute(later, 4).subtasks[0].ahead == (AheadOfWatermark(0, 2, 30),)
    assert [s.ahead for s in redistribute(later, 4).subtasks[2:]] == [(), ()]


def test_the_watermark_is_the_earliest_of_those_followed_or_unknown() -> None:
    assert [s.watermark for s in redistribute(of(4), 2).subtasks] == [1000, 1002]
    some = operator(subtask(0, 2), subtask(1, 2, watermark=None))
    assert [s.watermark for s in redistribute(some, 1).subtasks] == [None]


def test_a_subtask_is_finished_when_all_that_it_follows_were() -> None:
    half = operator(*(subtask(i, 4, finished=i < 2) for i in range(4)))
    assert [s.finished for s in redistribute(half, 2).subtasks] == [True, False]
    assert [s.finished for s in redistribute(half, 1).subtasks] == [False]


def test_what_a_finished_subtask_has_emitted_is_not_taken_over_by_a_running_one() -> None:
    half = operator(subtask(0, 2, finished=True, watermark=5), subtask(1, 2))
    heir = redistribute(half, 1).subtasks[0]
    assert [layer.subtask for layer in heir.inherited] == [1]
    assert heir.watermark == 1001
    assert heir.transactions == (b"tx-0", b"tx-1")


def test_the_splits_that_a_finished_source_has_read_stay_read() -> None:
    half = operator(subtask(0, 2, finished=True), subtask(1, 2), state=SPLITS)
    assert [layer.subtask for layer in redistribute(half, 1).subtasks[0].inherited] == [0, 1]


keys = st.recursive(
    st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1), st.binary(), st.booleans(), st.none()),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(st.integers(1, 500), st.integers(1, 500))
def test_ranges_partition_the_key_groups_in_order(key_groups: int, parallelism: int) -> None:
    parallelism = min(parallelism, key_groups)
    ranges = [range_of(n, key_groups, parallelism) for n in range(parallelism)]
    covered = [g for r in ranges for g in range(r.first, r.last + 1)]
    assert covered == list(range(key_groups))
    sizes = [r.last - r.first + 1 for r in ranges]
    assert max(sizes) - min(sizes) <= 1
    owners = (subtask_of(group, key_groups, parallelism) for group in covered)
    assert all(group in ranges[owner] for group, owner in enumerate(owners))


@given(keys, keys)
def test_a_key_comes_back_as_it_was_and_is_not_the_beginning_of_another(
    key: object, other: object
) -> None:
    """A scan over the rows of one key must not meet another key's."""
    encoded, another = encode_key(key), encode_key(other)
    assert decode_key(encoded) == key
    assert encoded == another or not another.startswith(encoded)


def test_key_groups_never_change_between_releases() -> None:
    stored = {"tide": 126, ("a", 1): 31, 7: 58, b"x": 79}
    assert {key: key_group(encode_key(key), 128) for key in stored} == stored


def holding(index: int, *pieces: OperatorPiece, finished: bool = False) -> SubtaskState:
    return subtask(index, 2, operator_state=pieces, finished=finished)


def piece(*values: Any) -> OperatorPiece:
    return OperatorPiece("op", "state", "broadcast", tuple(map(msgspec.msgpack.encode, values)))


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


def test_a_value_that_cannot_be_stored_names_its_state() -> None:
    states = OperatorStates()
    rules = states.broadcast("op", "rules")
    with pytest.raises(StateSchemaError, match="broadcast state 'rules' of operator 'op'"):
        rules["a"] = object()
    assert dict(rules) == {}


def test_a_broadcast_state_is_taken_from_a_running_subtask() -> None:
    old = operator(holding(0, piece(["a", 1]), finished=True), holding(1, piece(["a", 2])))
    assert after(old, 2) == [[["a", 2]]] * 2
    assert after(old, 3) == [[["a", 2]]] * 3
