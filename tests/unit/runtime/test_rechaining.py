"""Another parallelism takes chains of operators apart; nothing that is stored loses its owner."""

from typing import Any

import pytest

from tests.support.pipelines import Outside, words
from tidelog import Job, RestoreError
from tidelog.checkpoint.manifest import OperatorPiece, OperatorState, StateInfo, SubtaskState
from tidelog.ids import SeqNo
from tidelog.runtime.restore.shares import rechain
from tidelog.runtime.subtasks.vertices import Vertex, compile_job
from tidelog.state.key_groups import range_of

GROUPS = 8
COUNT = StateInfo(0, "aggregate", "aggregate", ("msgpack",))


def vertices(parallelism: int) -> list[Vertex]:
    """At parallelism 1 source and map share a task, and so do the aggregate and the sink; at
    another one the map is kept apart."""
    job = Job("job")
    counted = job.source(words(), parallelism=1).map(str).key_by(str)
    counted.aggregate(lambda _: 1, lambda a, b: a + b).sink(Outside(), parallelism=1)
    return compile_job(job, parallelism, apart=() if parallelism == 1 else ("map",))


def stored(name: str, parallelism: int, *states: StateInfo, **fields: Any) -> OperatorState:
    def subtask(index: int) -> SubtaskState:
        owned = range_of(index, GROUPS, parallelism)
        own = {key: value(index) for key, value in fields.items()}
        return SubtaskState(index, owned.first, owned.last, SeqNo(9), "memory", **own)

    return OperatorState(name, GROUPS, states, tuple(map(subtask, range(parallelism))))


def transactions(operator: OperatorState) -> list[tuple[bytes, ...]]:
    return [state.transactions for state in operator.subtasks]


def test_a_sink_that_gets_tasks_of_its_own_takes_its_transactions_along() -> None:
    chained = stored("aggregate", 1, COUNT, transactions=lambda i: (b"tx",))
    found = rechain({"aggregate": chained}, vertices(2))
    assert transactions(found["sink"]) == [(b"tx",)]
    assert transactions(found["aggregate"]) == [()]
    assert found["aggregate"].states == (COUNT,)


def test_a_sink_that_joins_the_tasks_before_it_takes_its_transactions_along() -> None:
    operators = {
        "aggregate": stored("aggregate", 2, COUNT),
        "sink": stored("sink", 3, transactions=lambda i: (b"tx-%d" % i,)),
    }
    found = rechain(operators, vertices(1))
    assert set(found) == {"aggregate"}
    assert transactions(found["aggregate"]) == [(b"tx-0", b"tx-2"), (b"tx-1",)]


def test_state_of_an_operator_that_is_not_the_first_any_more_is_refused() -> None:
    with pytest.raises(RestoreError, match=r"state of operator 'map'.*the first of a chain"):
        rechain({"map": stored("map", 2, COUNT)}, vertices(1))


@pytest.mark.parametrize(("name", "parallelism"), [("source", 2), ("map", 1)])
def test_operator_state_that_would_lose_its_operator_is_refused(
    name: str, parallelism: int
) -> None:
    held = stored(name, 1, operator_state=lambda i: (OperatorPiece("map", "rules", "list", ()),))
    with pytest.raises(RestoreError, match=f"operator state of operator '{name}'"):
        rechain({name: held}, vertices(parallelism))
