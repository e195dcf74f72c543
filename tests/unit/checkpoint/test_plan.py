"""The plan of a checkpoint reaches every running task, and no other."""

import hypothesis.strategies as st
from hypothesis import given

from tests.property.profiles import looking
from tidelog.checkpoint.coordinator import Plan, make_plan

#   a   b        two sources, one of them read by two operators
#   |\ /
#   c d
#    \|
#     e
GRAPH = {"a": [], "b": [], "c": ["a"], "d": ["a", "b"], "e": ["c", "d"]}


def plan(*exited: str) -> Plan[str]:
    return make_plan(GRAPH, set(exited))


def test_a_checkpoint_starts_at_the_sources() -> None:
    assert plan() == Plan(frozenset("ab"), frozenset("abcde"))


def test_behind_a_finished_source_it_starts_where_nobody_else_brings_the_barrier() -> None:
    assert plan("a") == Plan(frozenset("bc"), frozenset("bcde"))


def test_it_starts_in_the_middle_when_all_sources_finished() -> None:
    assert plan("a", "b") == Plan(frozenset("cd"), frozenset("cde"))


def test_a_task_with_one_running_predecessor_left_gets_its_barrier_from_there() -> None:
    assert plan("a", "b", "c") == Plan(frozenset("d"), frozenset("de"))


def test_the_last_task_gets_it_from_the_coordinator() -> None:
    assert plan("a", "b", "c", "d") == Plan(frozenset("e"), frozenset("e"))


def test_of_a_job_that_ended_nobody_takes_part() -> None:
    assert plan("a", "b", "c", "d", "e") == Plan(frozenset(), frozenset())


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, list[int]], set[int]]:
    """Any acyclic graph, with any tasks exited."""
    size = draw(st.integers(1, 8))
    before = [draw(st.lists(st.integers(0, n - 1), unique=True)) if n else [] for n in range(size)]
    return dict(enumerate(before)), draw(st.sets(st.integers(0, size - 1)))


@looking(100, deep=30)
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
