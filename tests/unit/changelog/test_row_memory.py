"""Memory of rows: sizes come near the truth, and whoever passes the limit makes room."""

import sys
from collections.abc import Iterator

import pytest

from tidelog.changelog.row_memory import RowAccount, RowMemory, RowSize, object_bytes


@pytest.mark.parametrize(
    "value",
    [
        b"x" * 5000,
        "y" * 700,
        17,
        None,
        (1, 2.5, "z" * 90),
        ["word"] * 400,
        {"a": [b"q" * 3000] * 9},
    ],
)
def test_an_object_counts_with_what_it_holds(value: object) -> None:
    found = object_bytes(value)
    assert _exact(value) * 0.8 <= found <= _exact(value) * 1.2


def _exact(value: object) -> int:
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(_exact(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple):
        return size + sum(map(_exact, value))
    return size


def test_the_mean_follows_rows_that_grow() -> None:
    size = RowSize()
    for _ in range(100):
        size.sample(b"key", b"small")
    small = size.bytes
    for _ in range(200):
        size.sample(b"key", bytes(16384))
    assert small < 300 and 16_000 < size.bytes < 18_000


def test_the_largest_give_back_until_the_rest_fits() -> None:
    memory = RowMemory(100)
    shed: list[int] = []
    accounts: list[RowAccount] = []

    def give_back(number: int) -> Iterator[None]:
        shed.append(number)
        yield
        accounts[number].holds(0)

    for number in range(4):
        accounts.append(memory.account(lambda number=number: give_back(number)))  # type: ignore[misc]
    for number, size in enumerate((10, 50, 40, 0)):
        accounts[number].holds(size)
    assert list(memory.make_room()) == [] and shed == [] and memory.used_bytes == 100
    accounts[3].holds(5)
    first, second = memory.make_room(), memory.make_room()
    assert next(first, "done") is None and next(second, "done") is None, "the second one waits"
    assert next(first, "done") == "done" and next(second, "done") == "done"
    assert shed == [1] and memory.used_bytes == 55
    accounts[0].holds(500)
    list(memory.make_room())
    assert shed == [1, 0] and memory.used_bytes == 45
    accounts[2].close()
    assert memory.used_bytes == 5


def test_only_who_keeps_much_gives_up_what_its_table_has_as_well() -> None:
    memory = RowMemory(1000)
    large, small, idle = (memory.account(lambda: iter(())) for _ in range(3))
    large.holds(600)
    small.holds(50)
    assert not memory.crowded_by(600), "a quarter of the limit is free"
    large.holds(750)
    assert memory.crowded_by(740) and not memory.crowded_by(50)
    assert not memory.crowded_by(0), "what only the buffer has cannot be given up"
    large.holds(600)
    idle.holds(0)
    assert not memory.crowded_by(600)


def test_without_a_limit_nothing_is_given_back() -> None:
    memory = RowMemory()
    account = memory.account(lambda: pytest.fail("nobody asked for room"))
    account.holds(1 << 50)
    assert list(memory.make_room()) == []
    assert not memory.crowded_by(1 << 50)
    assert memory.used_bytes == 1 << 50
