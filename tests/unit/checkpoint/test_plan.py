"""The plan of a checkpoint reaches every running task, and no other."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tidelog.checkpoint.coordinator import Plan, make_plan

#   a   b        two sources, one of them read by two operators
#   |\ /
#   c d
#    \|
#     e
GRAPH = {"a": [], "b": [], "c": ["a"], "d": ["a", "b"], "e": ["c", "d"]}


@pytest.mark.parametrize(
    ("exited", "starts_at"),
    [
        pytest.param("", "ab", id="at the sources"),
        pytest.param("a", "bc", id="where no other task brings the barrier"),
        pytest.param("ab", "cd", id="in the middle when all sources finished"),
        pytest.param("abc", "d", id="where no predecessor is left that would bring it"),
        pytest.param("abcd", "e", id="at the last task"),
        pytest.param("abcde", "", id="nowhere in a job that ended"),
    ],
)
def test_a_checkpoint_starts(exited: str, starts_at: str) -> None:
    takes_part = frozenset("abcde") - set(exited)
    assert make_plan(GRAPH, set(exited)) == Plan(frozenset(starts_at), takes_part)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, list[int]], set[int]]:
    """Any acyclic graph, with any tasks exited."""
    size = draw(st.integers(1, 8))
    before = [draw(st.lists(st.integers(0, n - 1), unique=True)) if n else [] for n in range(size)]
    return dict(enumerate(before)), draw(st.sets(st.integers(0, size - 1)))


@looking(100)
@given(graphs())
def test_barriers_sent_as_planned_reach_every_running_task(
    drawn: tuple[dict[int, list[int]], set[int]],
) -> None:
    graph, exited = drawn
    made = make_plan(graph, exited)
    assert made.takes_part == graph.keys() - exited
    reached = set(made.starts_at)
    for task in sorted(graph):  # predecessors have smaller numbers
        senders = set(graph[task]) - exited
        if senders and task not in exited:
            assert task not in made.starts_at, "it would get the barrier twice"
            assert senders <= reached, "alignment waits for all of them"
            reached.add(task)
    assert reached == made.takes_part
