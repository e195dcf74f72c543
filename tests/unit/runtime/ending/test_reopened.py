"""Who runs again in another shape of an operator of which a part had finished."""

import pytest

from tests.support.pipelines import Outside, config
from tests.unit.runtime.ending.jobs import merged, short
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    OperatorState,
    StateInfo,
    SubtaskState,
)
from tidelog.ids import CheckpointId, Generation, SeqNo, Slot
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.restore.fit import fit_checkpoint


def restored(name: str, *kinds: str) -> Checkpoint:
    """An operator with one finished subtask and one that runs."""
    states = tuple(StateInfo(n, kind, kind, ("msgpack",)) for n, kind in enumerate(kinds))
    subtasks = (
        SubtaskState(0, 0, 3, SeqNo(5), "memory", inline=(b"x",), finished=True),
        SubtaskState(1, 4, 7, SeqNo(9), "memory", inline=(b"y",), watermark=7),
    )
    return Checkpoint(
        *(Slot(3), Author(Generation(0), "a"), CheckpointId(1), 0, "merged"),
        (OperatorState(name, 8, states, subtasks),),
    )


def matched(name: str, parallelism: int, *kinds: str) -> list[tuple[bool, int]]:
    """(finished, parts of older subtasks that it loads) of every new subtask."""
    seen, job = restored(name, *kinds), merged(short(), short(), Outside())
    plan = fit_checkpoint(job, Resumption(seen), seen, config(parallelism=parallelism))
    return [(s.finished, len(s.inherited)) for s in plan.operators[name].subtasks]


def test_in_the_same_shape_what_finished_stays_finished() -> None:
    assert matched("aggregate", 2, "aggregate") == [(True, 0), (False, 0)]


@pytest.mark.parametrize("parallelism", [1, 3, 4])
def test_in_another_shape_all_subtasks_take_records_and_none_of_what_had_been_emitted(
    parallelism: int,
) -> None:
    found = matched("aggregate", parallelism, "aggregate")
    assert not any(finished for finished, _ in found)
    assert sum(parts for _, parts in found) == {1: 1, 3: 2, 4: 2}[parallelism]


def test_of_a_source_what_was_read_is_kept_and_its_heirs_stay_finished() -> None:
    assert matched("left", 4, "splits") == [(True, 1), (True, 1), (False, 1), (False, 1)]
    assert matched("left", 1, "splits") == [(False, 2)]
