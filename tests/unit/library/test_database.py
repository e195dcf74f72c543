"""A program with a loop of its own keeps its state and its place through every end of it."""

import asyncio
import math
import os
import re
import signal
import subprocess
import sys
import threading
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import tidelog
from tests.support.cli import tidelog as command
from tests.support.depth import more_in_depth
from tests.unit.library.conftest import OFTEN, Broken, in_threads, opened
from tidelog import CheckpointConfig, Database, JobConfig, ValueState
from tidelog.errors import (
    CheckpointFailedError,
    ConfigError,
    FencedError,
    RestoreError,
    StateSchemaError,
    TidelogError,
    UserFunctionError,
)
from tidelog.storage.local import LocalStore


def test_what_was_changed_is_there_again_with_the_position(url: str) -> None:
    with opened(url) as db:
        assert db.position is None
        db.key("a").total.set(7)
        db.key("a").seen.set("x", 5)
        db.key(("b", 1)).names.append("first")
        db.advance("topic-0", 41)
        db.advance("topic-1", [3, "c"])
    with opened(url) as db:
        assert db.position == {"topic-0": 41, "topic-1": [3, "c"]}
        assert db.key("a").total.get() == 7
        assert db.key("a").seen.items() == [("x", 5)]
        assert db.key(("b", 1)).names.get() == ["first"]
        assert db.key("b").total.get() is None


def test_a_partition_that_a_dict_of_positions_could_not_tell_from_others_is_refused(
    url: str,
) -> None:
    nan = float("nan")
    with opened(url) as db:
        db.advance(1, 1)
        db.advance(("a", 1), 2)
    with opened(url) as db:
        refused = [True, 1.0, ("a", True), ("a", 1.0), nan, ("b", nan)]
        for partition in refused:
            with pytest.raises(ConfigError, match=re.escape(f"partition {partition!r}")):
                db.advance(partition, 9)
        db.advance(1, 3)
    with tidelog.open(url, checkpoint="latest") as view:
        assert view.position == {1: 3, ("a", 1): 2}


def test_a_time_zone_that_this_machine_does_not_know_is_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as db:
        db.advance("t", datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Vienna")))
    ZoneInfo.clear_cache(only_keys=["Europe/Vienna"])
    for part in ("tzdata", "tzdata.zoneinfo", "tzdata.zoneinfo.Europe"):  # some may be imported
        monkeypatch.setitem(sys.modules, part, None)
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    try:
        with pytest.raises(RestoreError, match=r"time zone 'Europe/Vienna'.*pip install tzdata"):
            opened(url)
        assert command("log", url).exit_code == 0, "other rows are shown, and this one's bytes"
    finally:
        zoneinfo.reset_tzpath()


def test_every_kind_of_state_reads_what_was_written_last(url: str) -> None:
    with opened(url) as db:
        key = db.key("k")
        key.total.set(1)
        key.total.delete()
        key.seen.set("a", 1)
        key.seen.set("b", 2)
        key.seen.delete("a")
        key.names.set(["x", "y"])
        key.names.append("z")
        read = key.total.get(), key.seen.get("a"), key.seen.items(), key.names.get()
        assert read == (None, None, [("b", 2)], ["x", "y", "z"])
        key.seen.clear()
        key.names.delete()
        assert (key.seen.items(), key.names.get()) == ([], [])


@pytest.mark.parametrize("elements", ["text", {"a": 1}, None, 5])
def test_a_list_is_not_set_to_the_letters_of_a_text(url: str, elements: Any) -> None:
    with opened(url) as db:
        db.key("k").names.append("x")
        with pytest.raises(StateSchemaError, match="a list of its elements"):
            db.key("k").names.set(elements)
        assert db.key("k").names.get() == ["x"]


def test_threads_that_work_while_it_is_closed_are_told_so(url: str) -> None:
    began, ended = threading.Barrier(5), list[Exception]()

    def work(db: Database, name: str) -> None:
        began.wait()
        try:
            while True:
                with db.step():
                    db.key(name).total.set((db.key(name).total.get() or 0) + 1)
        except ConfigError as error:
            ended.append(error)

    with opened(url, OFTEN) as db:
        threads = [threading.Thread(target=work, args=(db, name)) for name in "abcd"]
        for thread in threads:
            thread.start()
        began.wait()
    for thread in threads:
        thread.join()
    assert len(ended) == 4 and all("open it again" in str(error) for error in ended)


def test_threads_that_close_it_at_once_all_find_it_closed(url: str) -> None:
    db = opened(url)
    with db.step():
        db.key("a").total.set(1)
    closed = list[bool]()

    def close() -> None:
        db.close()
        closed.append(db.ended)

    in_threads(close, close, close)
    assert closed == [True] * 3
    with opened(url) as db:
        assert db.key("a").total.get() == 1


def test_an_error_after_the_close_is_raised_as_it_is(url: str) -> None:
    with pytest.raises(ConfigError, match="open it again"), opened(url) as db:
        db.key("a").total.set(1)
        db.close()
        db.key("a").total.set(2)
    with opened(url) as db:
        assert db.key("a").total.get() == 1


def test_a_position_is_stored_as_it_was_when_it_was_given(url: str) -> None:
    with pytest.raises(Broken), opened(url) as db:
        offsets = {"a": 1, "b": [2]}
        db.advance("t", offsets)
        offsets["a"] = 5
        offsets["b"].append(7)
        db.checkpoint()
        read = db.position or {}
        read["t"]["a"] = 9
        assert db.position == {"t": {"a": 1, "b": [2]}}
        raise Broken
    with opened(url) as db:
        assert db.position == {"t": {"a": 1, "b": [2]}}


@dataclass
class Place:
    offset: int


def test_a_position_is_of_the_class_that_a_notebook_has_defined_last(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as db:
        db.advance("t", Place(1))

    @dataclass
    class Again:
        offset: int
        file: str = ""

    Again.__qualname__ = "Place"
    monkeypatch.setattr(sys.modules[__name__], "Place", Again)
    with opened(url) as db:
        assert db.position == {"t": Again(1, "")}
        db.advance("t", Again(2, "b"))
        db.checkpoint()
        assert db.position == {"t": Again(2, "b")}


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (int, "ValueState"),
        (ValueState, "ValueState"),
        ("bigint", "ValueState"),
        (ValueState(object), "list"),
        (ValueState(int, ttl_s=0), "ttl_s"),
        (ValueState(int, ttl_s="1h"), "ttl_s"),  # type: ignore[arg-type]
        (ValueState(int, ttl_s=math.inf), "ttl_s"),
        (ValueState(int, ttl_s=0.0004), "ttl_s"),
    ],
)
@pytest.mark.parametrize("checkpoint", [None, "latest"])
def test_what_declares_no_state_is_refused_by_its_name(
    url: str, state: Any, what: str, checkpoint: Any
) -> None:
    with pytest.raises(ConfigError, match=f"(?s)(?=.*'wrong').*{what}"):
        tidelog.open(url, {"wrong": state}, checkpoint=checkpoint)


@pytest.mark.parametrize("name", [1, "$mine", "_key", "__init__", "a\0b", "\ud800"])
def test_a_name_that_no_state_can_have_is_refused(url: str, name: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"name of state {name!r}")):
        tidelog.open(url, {name: ValueState(int)})


def test_a_program_that_is_interrupted_at_any_place_ends(url: str) -> None:
    """Ctrl-C comes to the main thread wherever it is, ten times in each process."""
    program = """
import signal, sys
from tidelog import MapState, ValueState, open

def interrupted(after):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    with open(sys.argv[1], state={"total": ValueState(int), "seen": MapState(str, int)}) as db:
        number = 0
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        # Again after 10 s: Python drops an exception within a callback of a weak reference.
        signal.setitimer(signal.ITIMER_REAL, after, 10)
        while True:
            db.key(number % 9).total.set(number)
            db.key(number % 9).seen.set("a", number)
            db.advance("in", number)
            number += 1

*others, last = map(float, sys.argv[2:])
for after in others:
    try:
        interrupted(after)
    except KeyboardInterrupt:
        continue
    raise AssertionError("it went on")
interrupted(last)
"""
    for number in range(more_in_depth(2, 4)):
        pauses = [str(0.05 + (number + n) / 1_000) for n in range(0, 40, 4)]
        command = [sys.executable, "-c", program, url, *pauses]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr


def test_steps_of_several_threads_are_whole_in_every_checkpoint(url: str) -> None:
    def add(db: Database, name: str, times: int) -> None:
        for _ in range(times):
            with db.step():
                for side in ("left", "right"):
                    total = db.key(f"{name}-{side}").total
                    total.set((total.get() or 0) + 1)

    names = ["one", "two", "three"]
    with pytest.raises(Broken), opened(url, OFTEN) as db:
        in_threads(*(partial(add, db, name, 1500) for name in names))
        raise Broken
    with opened(url) as db:
        for name in names:
            counts = {db.key(f"{name}-{side}").total.get() for side in ("left", "right")}
            assert len(counts) == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_has_no_part_in_it(url: str) -> None:
    def uses(db: Database) -> list[Callable[[], object]]:
        total = db.key("a").total
        return [total.get, lambda: total.set(2), db.checkpoint, db.savepoint, db.step().__enter__]

    with opened(url) as db:
        db.key("a").total.set(1)
        child = os.fork()
        if not child:
            try:
                signal.alarm(20)
                for use in uses(db):
                    with pytest.raises(ConfigError, match="found one that was forked"):
                        use()
                db.close()
                os._exit(17)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        db.advance("t", 1)
    with opened(url) as db:
        assert (db.key("a").total.get(), db.position) == (1, {"t": 1})


def test_a_second_start_fences_the_first(url: str) -> None:
    first = opened(url)
    first.key("a").total.set(1)
    first.checkpoint()
    with opened(url) as second:
        assert second.key("a").total.get() == 1
        first.key("a").total.set(2)
        for use in (
            first.checkpoint,
            lambda: first.advance("t", 3),
            lambda: first.key("a").total.set(3),
            first.key("a").total.get,
        ):
            with pytest.raises(FencedError):
                use()
        with pytest.raises(CheckpointFailedError, match="the end of the job"):
            asyncio.run(first._job.driver.checkpoint())  # nobody would answer it any more
    with pytest.raises(FencedError):
        first.close()
    with opened(url) as db:
        assert db.key("a").total.get() == 1


def test_a_step_that_breaks_off_ends_the_database_if_it_has_changed_something(url: str) -> None:
    db = opened(url)
    with pytest.raises(Broken), db.step():
        raise Broken
    with db.step():
        db.key("a").total.set(1)
    db.checkpoint()
    with pytest.raises(Broken), db.step():
        db.key("a").total.set(2)
        raise Broken
    with pytest.raises(UserFunctionError, match="open the database again"):
        db.key("a").total.get()
    with pytest.raises(UserFunctionError, match="open the database again"):
        db.close()
    with opened(url) as again:
        assert again.key("a").total.get() == 1


def test_a_state_of_another_type_is_refused_and_the_stored_one_stays(url: str) -> None:
    with opened(url, total=ValueState(int)) as db:
        db.key("a").total.set(1)
    with pytest.raises(StateSchemaError, match="total"):
        opened(url, total=ValueState(str))
    with pytest.raises(ConfigError, match="type of state 'total'"):
        opened(url, total=ValueState(object))
    with opened(url, total=ValueState(int)) as db:
        assert db.key("a").total.get() == 1


def test_a_state_that_is_left_out_is_kept_until_it_comes_back(url: str) -> None:
    with opened(url, total=ValueState(int), other=ValueState(str)) as db:
        db.key("a").total.set(1)
        db.key("a").other.set("x")
    with opened(url, total=ValueState(int)) as db:
        assert db.key("a").total.get() == 1
    with opened(url, other=ValueState(str)) as db:
        assert db.key("a").other.get() == "x"
    with pytest.raises(StateSchemaError, match="give the state its name back") as refused:
        opened(url, other=ValueState(str), sum=ValueState(int))
    assert "--allow-non-restored-state state/total" in str(refused.value)
    assert "its rows stay in the store" in str(refused.value)
    config = JobConfig(allow_non_restored_state=("state/total",))
    with opened(url, config, other=ValueState(str), sum=ValueState(int)) as db:
        assert db.key("a").sum.get() is None
    with opened(url, total=ValueState(int)) as db:
        assert db.key("a").total.get() == 1


def test_an_interrupted_start_leaves_nothing_on_local_disk(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(store: LocalStore, name: str, data: bytes) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(LocalStore, "create", interrupted)
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            opened(url, JobConfig(work_dir=tmp_path / "work"))
        assert list((tmp_path / "work").glob("*/*")) == []


def test_what_a_dead_process_of_the_same_number_left_goes_and_what_is_open_stays(
    url: str, tmp_path: Path
) -> None:
    config = JobConfig(work_dir=tmp_path / "work")
    with opened(url, config) as db:
        db.key("a").total.set(1)
        db.checkpoint()
        (mine,) = (tmp_path / "work").glob("*/*")
        left = mine.with_name(f"{os.getpid()}-left")
        elsewhere = mine.rename(mine.with_name("99999999-of-another-container"))
        left.mkdir()
        tidelog.open(url, checkpoint="latest", config=config).close()
        assert elsewhere.exists() and not left.exists()
        elsewhere.rename(mine)


def test_its_store_is_one_that_the_commands_know(url: str) -> None:
    with opened(url) as db:
        db.key("a").total.set(1)
        db.advance("t", 1)
        db.savepoint("kept")
    assert command("inspect", url, "--deep").exit_code == 0
    assert command("verify", url, "--engine", "local").exit_code == 0
    assert "kept" in command("checkpoints", "list", url).stdout
    log = command("log", url).stdout
    assert '"a"' in log and '{"partition":"t"}' in log and '{"position":1}' in log


def test_a_step_that_never_ends_holds_up_nobody_for_ever(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    short = JobConfig(
        checkpoint=CheckpointConfig(interval=0.05, timeout=0.3, tolerable_failures=100)
    )
    with opened(url, short) as db:

        def stay() -> None:
            with db.step():
                db.key("slow").total.set(1)
                begun.set()
                go_on.wait()
                db.advance("slow", 1)

        thread = threading.Thread(target=stay, name="the slow one")
        thread.start()
        begun.wait()
        while "the slow one" not in caplog.text:
            db.key("quick").total.set(1)
            db.advance("quick", 1)
        go_on.set()
        thread.join()
        db.checkpoint()
        assert db.position == {"quick": 1, "slow": 1}


def test_a_class_that_was_moved_is_named_by_where_it_is_now(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = ModuleType("old_places"), ModuleType("new_places")
    for module in (old, new):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        source = "from dataclasses import dataclass\n@dataclass\nclass Spot:\n    offset: int\n"
        exec(source, vars(module))
    with opened(url) as db:
        db.advance("t", vars(old)["Spot"](1))
    vars(old)["Spot"] = vars(new)["Spot"]  # `from new_places import Spot`
    with pytest.raises(TidelogError, match=r"old_places.Spot \(it is new_places.Spot now\)"):
        opened(url)


def test_many_values_are_set_at_once_or_none_of_them(url: str) -> None:
    with opened(url) as db:
        db.key(1).total.set(7)
        db.apply("total", [(key, key) for key in range(3000)], partition="in", position=1)
        with pytest.raises(StateSchemaError, match="bigint"):
            db.apply("total", [(1, -1), (2, "text")], partition="in", position=2)
        with pytest.raises(
            ConfigError, match="apply to state 'seen'; expected a ValueState; found MapState"
        ):
            db.apply("seen", [(1, 1)])
        with db.step():
            db.apply("total", iter([("x", 1), ("x", 2)]))
        db.checkpoint()
        assert db.position == {"in": 1}
    with opened(url) as db:
        assert dict(db.scan("total")) == {**{key: key for key in range(3000)}, "x": 2}
