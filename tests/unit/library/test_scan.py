"""A scan finds every key of a state once, in the order of stored keys, whatever lies where."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

import tidelog
from tests.support.depth import more_in_depth
from tests.unit.library.conftest import opened
from tidelog import (
    CheckpointConfig,
    ConfigError,
    Database,
    FlushConfig,
    JobConfig,
    ListState,
    MapState,
    ValueState,
)
from tidelog.changelog import changed_rows
from tidelog.changelog.row_memory import BufferedRow
from tidelog.library.handles import KeyStates
from tidelog.state.key_groups import decode_key

STORED_ORDER = msgspec.msgpack.encode
PREFIXES: list[Any] = ["", "a", "ab", "abx", "x" * 32, b"", b"a", (), ("a",), ("a", 0), ("x",) * 16]


class First(NamedTuple):
    name: str


def random_key(rng: random.Random) -> Any:
    text = "ab"[: rng.randrange(3)] + "x" * rng.choice([0, 1, 2, 29, 30, 31, 32, 250, 260, 70_000])
    number = rng.choice([0, 1, 127, 128, 70_000, 1 << 40, -1, -33, -200, -(1 << 40)])
    simple = [text, text.encode(), number, None, True, rng.random()]
    return rng.choice([*simple, (text,), (text, number), (text, number, text), (text,) * 17])


@pytest.mark.parametrize("seed", range(more_in_depth(1, 30)))
def test_keys_of_every_kind_come_in_the_order_in_which_they_are_stored(url: str, seed: int) -> None:
    rng = random.Random(seed)
    expected: dict[Any, int] = {}
    with opened(url) as db:
        for number in range(600):
            key = random_key(rng)
            if rng.random() < 0.2:
                db.key(key).total.delete()
                expected.pop(STORED_ORDER(key), None)
            else:
                db.key(key).total.set(number)
                expected[STORED_ORDER(key)] = number
            if number in (200, 400):
                db.checkpoint()  # some of it is in the table, some in the write buffer
        found = [(STORED_ORDER(key), value) for key, value in db.scan("total")]
        assert found == sorted(expected.items())
        for prefix in PREFIXES:
            wanted = [key for key in sorted(expected) if begins(decode_key(key), prefix)]
            assert [STORED_ORDER(key) for key, _ in db.scan("total", prefix=prefix)] == wanted
            for after in rng.choices(sorted(expected.keys() - {STORED_ORDER(None)}), k=3):
                rest = db.scan("total", prefix=prefix, after=decode_key(after))
                left = [key for key in wanted if key > after]
                assert [STORED_ORDER(key) for key, _ in rest] == left


def begins(key: Any, prefix: Any) -> bool:
    if type(key) is not type(prefix):
        return False
    if isinstance(prefix, tuple):
        return STORED_ORDER(key[: len(prefix)]) == STORED_ORDER(prefix)
    return bool(key.startswith(prefix))


def test_lists_come_whole_and_maps_by_their_entries(url: str) -> None:
    long = [str(number) for number in range(5000)]  # several rows, and several pieces of a scan
    with opened(url) as db:
        for key in ("a", ("a", 1), 7):
            db.key(key).names.set(long)
            db.key(key).seen.set("x", 1)
            db.key(key).seen.set("y", 2)
        db.key("gone").names.set(long)
        db.key("gone").names.delete()
        db.checkpoint()
        db.key("a").names.append("last")
        db.key("a").seen.delete("x")
        assert list(db.scan("names")) == [(7, long), (("a", 1), long), ("a", [*long, "last"])]
        entries = [(7, "x", 1), (7, "y", 2), (("a", 1), "x", 1), (("a", 1), "y", 2), ("a", "y", 2)]
        assert list(db.scan("seen")) == entries
        assert list(db.scan("seen", prefix=("a",))) == entries[2:4]
        assert list(db.scan("seen", prefix=First("a"))) == entries[2:4], "a tuple with names"
        assert list(db.scan("seen", after=7)) == entries[2:]


def test_the_entries_of_one_key_are_read_without_a_look_at_changed_rows_of_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[bytes] = []

    def counted(row: BufferedRow) -> bytes:
        looked_at.append(row.key)
        return row.key

    monkeypatch.setattr(changed_rows, "row_key", counted)
    unflushed = FlushConfig(rows=1 << 20, max_age=1e6)
    with opened(url, JobConfig(checkpoint=CheckpointConfig(interval=1e6), flush=unflushed)) as db:
        for number in range(20_000):
            db.key(number).seen.set("x", number)
        assert db.key(17).seen.items() == [("x", 17)]
        assert 0 < len(looked_at) < 1000


def test_what_has_expired_is_left_out(url: str) -> None:
    states: dict[str, Any] = {
        "value": ValueState(int, ttl_s=0.05),
        "names": ListState(str, ttl_s=0.05),
        "seen": MapState(str, int, ttl_s=0.05),
        "long": ValueState(int, ttl_s=3600),
    }
    with opened(url, **states) as db:
        db.key("a").value.set(1)
        db.key("a").names.append("x")
        db.key("a").seen.set("x", 1)
        db.key("a").long.set(1)
        while any(
            getattr(db.key("a"), name).get(*of)
            for name, *of in (("value",), ("names",), ("seen", "x"))
        ):
            pass
        assert [list(db.scan(name)) for name in states] == [[], [], [], [("a", 1)]]


def test_keys_may_be_deleted_and_set_while_others_are_scanned(url: str) -> None:
    with opened(url) as db:
        for number in range(3000):
            db.key(number).total.set(number)
        seen = []
        for key, value in db.scan("total"):
            seen.append(key)
            assert key == value
            db.key(key).total.delete()
            db.key(-1 - key).total.set(-1 - key)
        assert [key for key in seen if key >= 0] == list(range(3000))
        assert len(seen) == len(set(seen))
        assert sorted(key for key, _ in db.scan("total")) == list(range(-3000, 0))


STATES_OF_SCANS: dict[str, Any] = {
    "hot": ValueState(int),  # declared first: its rows leave the write buffer before the others
    "total": ValueState(int),
    "names": ListState(str),
    "seen": MapState(str, int),
}
SCANNED: list[tuple[str, Callable[[KeyStates, int], None], Callable[[Any, int], tuple[Any, ...]]]]
SCANNED = [
    ("total", lambda key, n: key.total.set(n), lambda key, n: (key, n)),
    ("names", lambda key, n: key.names.append(str(n)), lambda key, n: (key, [str(n)])),
    ("seen", lambda key, n: key.seen.set("x", n), lambda key, n: (key, "x", n)),
]


@contextmanager
def writer_beside(db: Database) -> Iterator[None]:
    """Another thread sets one new key after the other."""
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            with db.step():
                for _ in range(50):
                    number += 1
                    db.key(("hot", number)).hot.set(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


@pytest.mark.parametrize(("name", "change", "row"), SCANNED)
def test_a_scan_has_all_that_was_set_before_it_however_much_another_thread_sets(
    url: str,
    name: str,
    change: Callable[[KeyStates, int], None],
    row: Callable[[Any, int], tuple[Any, ...]],
) -> None:
    with opened(url, **STATES_OF_SCANS) as db, writer_beside(db):
        for part in range(5):
            keys = [(part, number) for number in range(5000)]
            with db.step():
                for key in keys:
                    change(db.key(key), key[1])
            found = list(db.scan(name, prefix=(part,)))
            expected = [row(key, key[1]) for key in sorted(keys, key=STORED_ORDER)]
            assert len(found) == len(expected)
            assert found == expected


async def test_a_scan_of_a_task_has_all_that_was_set_before_it_however_much_another_sets(
    url: str,
) -> None:
    async with tidelog.open_async(url, STATES_OF_SCANS) as db:

        async def write() -> None:
            for number in range(1 << 30):
                async with db.step():
                    for each in range(50):
                        db.key(("hot", number, each)).hot.set(number)
                await asyncio.sleep(0)

        writer = asyncio.create_task(write())
        for part in range(3):
            async with db.step():
                for number in range(5000):
                    db.key((part, number)).total.set(number)
            found = [value async for _, value in db.scan("total", prefix=(part,))]
            assert sorted(found) == list(range(5000))
        writer.cancel()


def test_a_list_that_is_replaced_while_it_is_scanned_comes_once_and_whole(url: str) -> None:
    with opened(url) as db:
        for number in range(300):
            db.key(number).names.set(["old"])
        db.checkpoint()
        keys = []
        for key, elements in db.scan("names"):
            keys.append(key)
            assert elements in (["old"], ["new", "new"])
            for number in range(300):
                db.key(number).names.set(["new", "new"])
        assert keys == list(range(300))


def test_pages_end_also_over_the_key_none(url: str) -> None:
    with opened(url) as db:
        for key in (1, None, True, "a"):
            db.key(key).total.set(1)
        pages: list[Any] = []
        page = next(iter(db.scan("total")), None)
        while page is not None:
            pages.append(page[0])
            page = next(db.scan("total", after=... if page[0] is None else page[0]), None)
        assert pages == [1, "a", None, True]
        with pytest.raises(ConfigError, match=r"after=None.*after=\.\.\. \(an Ellipsis\)"):
            db.scan("total", after=None)
        db.key(None).total.delete()
        assert [key for key, _ in db.scan("total", after=None)] == [1, "a", True]
        assert [key for key, _ in db.scan("total", after=None, prefix="a")] == ["a"]


def test_a_scan_goes_on_while_other_threads_write_and_checkpoints_are_taken(url: str) -> None:
    often = JobConfig(checkpoint=CheckpointConfig(interval=0.02), flush=FlushConfig(rows=200))
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            with db.step():
                for key in range(500):  # all of them in one step: all have one value
                    db.key(key).total.set(number)
                db.advance("t", number)

    with opened(url, often) as db:
        for key in range(500):
            db.key(key).total.set(0)
        db.advance("t", 0)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            before = 0
            for _ in range(5):
                found = dict(db.scan("total"))
                assert list(found) == list(range(500))
                assert min(found.values()) >= before
                before = min(found.values())
        finally:
            done.set()
            writer.join()
