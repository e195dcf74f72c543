"""The yardstick of the peers: counts as a plain dict has them."""

import collections

import pytest

from tidelog.errors import TidelogError
from tidelog_bench.embedded.words import Stages, Words, Workload, draw
from tidelog_bench.peers.task import check, expected

WORDS = Words(["a", "b", "c"], ["a", "a", "c", "b", "a"])


@pytest.mark.parametrize(
    ("position", "counts"),
    [
        (0, {}),
        (2, {"a": 1, "b": 1}),
        (3, {"a": 1, "b": 1, "c": 1}),
        (5, {"a": 3, "b": 1, "c": 1}),
        (8, {"a": 4, "b": 2, "c": 2}),
        (15, {"a": 9, "b": 3, "c": 3}),
    ],
)
def test_the_stream_goes_round_as_often_as_it_is_read(
    position: int, counts: dict[str, int]
) -> None:
    assert expected(WORDS, position) == counts


def test_expected_counts_are_those_of_the_buffers_a_source_is_handed() -> None:
    words = draw(Workload(500, 16, draws=3000), seed=7)
    stages = Stages(words, warm_s=0.0, seconds=1e9)
    seen: collections.Counter[str] = collections.Counter()
    position = 0
    for _ in range(9):
        buffer = stages.read(position)
        assert buffer
        seen.update(buffer)
        position += len(buffer)

    assert position > len(words.fill) + 2 * len(words.stream)
    assert expected(words, position) == seen


def test_right_counts_pass() -> None:
    check("a system", {"a": 3, "b": 1, "c": 1}, WORDS, 5)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"a": 2, "b": 1, "c": 1}, "2 times a"),
        ({"a": 3, "b": 1}, "None times c"),
        ({"a": 3, "b": 1, "c": 1, "z": 1}, "1 times z"),
    ],
)
def test_a_lost_an_absent_and_an_additional_word_are_each_named(
    found: dict[str, int], said: str
) -> None:
    with pytest.raises(TidelogError, match="counts that a system restored") as raised:
        check("a system", found, WORDS, 5)

    assert said in str(raised.value)
    assert "1 differ" in str(raised.value)
