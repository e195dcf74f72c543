"""A scan finds every key of a state once, in the order of stored keys, whatever lies where."""

import random
import threading
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.support.depth import more_in_depth
from tests.unit.library.conftest import opened
from tidelog import FlushConfig, JobConfig, List, Map, Schedule, Value
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


def test_what_has_expired_is_left_out(url: str) -> None:
    states: dict[str, Any] = {
        "value": Value(int, ttl_s=0.05),
        "names": List(str, ttl_s=0.05),
        "seen": Map(str, int, ttl_s=0.05),
        "long": Value(int, ttl_s=3600),
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


def test_a_scan_goes_on_while_other_threads_write_and_checkpoints_are_taken(url: str) -> None:
    often = JobConfig(checkpoint=Schedule(interval=0.02), flush=FlushConfig(rows=200))
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
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
