"""What the programs of other systems share: counts, words as files, their Python, their cost."""

import asyncio
import collections
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.errors import TidelogError
from tidelog_bench.embedded.words import Stages, Words, Workload, draw
from tidelog_bench.peers import systems
from tidelog_bench.peers.feed import Feed
from tidelog_bench.peers.systems import System, interpreter, missing
from tidelog_bench.peers.task import check, expected
from tidelog_bench.peers.usage import Process, family, parse, size_mb

WORDS = Words(["a", "b", "c"], ["a", "a", "c", "b", "a"])


@pytest.mark.parametrize(
    ("position", "counts"),
    [(0, {}), (2, {"a": 1, "b": 1}), (5, {"a": 3, "b": 1, "c": 1}), (15, {"a": 9, "b": 3, "c": 3})],
)
def test_the_stream_goes_round_as_often_as_it_is_read(
    position: int, counts: dict[str, int]
) -> None:
    assert expected(WORDS, position) == counts


def test_expected_counts_are_those_of_the_buffers_a_source_is_handed() -> None:
    words = draw(Workload(500, 16, draws=3000), seed=7)
    stages = Stages(words, warm_s=0.0, seconds=1e9)
    seen: collections.Counter[str] = collections.Counter()
    for _ in range(9):
        seen.update(stages.read(seen.total()) or [])
    assert seen.total() > len(words.fill) + 2 * len(words.stream)
    assert expected(words, seen.total()) == seen


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"a": 2, "b": 1, "c": 1}, "2 times a, 1 differ"),
        ({"a": 3, "b": 1}, "None times c, 1 differ"),
        ({"a": 3, "b": 1, "c": 1, "z": 1}, "1 times z, 1 differ"),
    ],
)
def test_a_lost_an_absent_and_an_additional_word_are_each_named(
    found: dict[str, int], said: str
) -> None:
    check("a system", {"a": 3, "b": 1, "c": 1}, WORDS, 5)
    with pytest.raises(TidelogError, match=f"counts that a system restored.*{said}"):
        check("a system", found, WORDS, 5)


def lines(feed: Feed) -> list[str]:
    return "".join(path.read_text() for path in sorted(feed.input.iterdir())).split()


def test_files_hold_the_fill_and_then_the_stream_going_round(tmp_path: Path) -> None:
    feed = Feed(tmp_path, Words([*"abc"], [*"defgh"]), piece_words=2)
    feed.fill()
    for _ in range(5):
        feed.add()
    assert lines(feed) == [*"abcdefghdefg"]
    assert (feed.position, feed.ends) == (12, [2, 3, 5, 7, 8, 10, 12])
    feed.keep_ahead(position=10, words=4)
    feed.keep_ahead(position=10, words=4)
    assert feed.position == 15
    # The fill can come once more, after everything.
    assert feed.again() == 3
    assert lines(feed)[-3:] == [*"abc"]


def test_a_mark_ends_each_file_and_is_no_word(tmp_path: Path) -> None:
    feed = Feed(tmp_path, WORDS, piece_words=2, mark="#")
    feed.fill()
    assert lines(feed) == ["a", "b", "#", "c", "#"]
    assert feed.position == 3


def test_a_system_that_is_kept_busy_has_a_piece_before_it(tmp_path: Path) -> None:
    feed = Feed(tmp_path, WORDS, piece_words=2)
    read, reached = iter([0, 3, 6, 9, 12, 15]), list[int]()

    def position() -> int:
        reached.append(next(read))
        # Was enough there at the look before?
        assert len(reached) == 1 or feed.position >= reached[-2] + 2
        return reached[-1]

    asyncio.run(feed.keep_busy(position, seconds=0.3, ahead_s=0.0))
    assert len(reached) > 1


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> str:
    """A system that no environment has."""
    system = System("other", "Other", "no_such_module", "other_count", "other", "peers")
    monkeypatch.setitem(systems.SYSTEMS, "other", system)
    return "other"


def python_with(root: Path, name: str, module: str) -> Path:
    """An environment whose Python finds a module."""
    (root / "site").mkdir(parents=True)
    (root / "site" / f"{module}.py").write_text("")
    python = root / ".tools" / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={root}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def test_a_peer_is_looked_for_where_it_is_named_and_in_the_tools(
    unknown: str, tmp_path: Path
) -> None:
    assert interpreter("tidelog", {}, ()) == Path(sys.executable)
    assert missing("tidelog", {}, ()) is None
    reason = missing(unknown, {}, ()) or ""
    for said in ("Other is not installed", "`just peers`", "tidelog[peers]", "TIDELOG_PEER_OTHER"):
        assert said in reason
    in_tools = python_with(tmp_path / "tools", "peer-other", "no_such_module")
    roots = (tmp_path / "tools",)
    assert interpreter(unknown, {}, roots) == in_tools
    named = python_with(tmp_path / "named", "any", "no_such_module")
    assert interpreter(unknown, {"TIDELOG_PEER_OTHER": str(named)}, roots) == named
    for wrong in (sys.executable, str(tmp_path / "absent")):
        assert missing(unknown, {"TIDELOG_PEER_OTHER": wrong}, roots) == (
            f"TIDELOG_PEER_OTHER is {wrong}, which is no Python with `no_such_module`"
        )


def test_a_peer_on_the_jvm_is_missing_where_there_is_no_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = System("jvm", "Jvm", "json", "jvm_count", "jvm", java=True)
    monkeypatch.setitem(systems.SYSTEMS, "jvm", system)
    assert "needs Java" in (missing("jvm", {"PATH": str(tmp_path)}, ()) or "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("")
    assert missing("jvm", {"JAVA_HOME": str(tmp_path), "PATH": ""}, ()) is None


def test_a_family_is_the_root_with_all_its_descendants_and_nobody_else(tmp_path: Path) -> None:
    # A name with blanks and parentheses does not shift the fields.
    fields = ["S", "7", *["0"] * 9, "100", "20", "3", "4", *["0"] * 6, "250", "0"]
    process = parse(f"42 (a (strange) name) {' '.join(fields)}")
    ticks = os.sysconf("SC_CLK_TCK")
    assert (process.pid, process.parent, process.cpu_s) == (42, 7, 127 / ticks)
    found = [Process(pid, parent, 1.0) for pid, parent in ((5, 4), (2, 1), (4, 2), (3, 1))]
    assert sorted(process.pid for process in family(found, 2)) == [2, 4, 5]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one").write_bytes(b"x" * 1_500_000)
    (tmp_path / "two").write_bytes(b"x" * 500_000)
    assert size_mb(tmp_path) == 2.0


# In a process of its own: here a server of another test may end at any moment.
_PARENT = """
import os, subprocess, sys
from tidelog_bench.peers import usage

measure = lambda: usage.tree_mark(0).cpu if sys.argv[1] == "cpu" else usage.tree_peak_mb()
before = measure()
with subprocess.Popen(
    [sys.executable, "-c", sys.argv[2] + "; print('done', flush=True); input()"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
) as child:
    child.stdout.readline()
    alive = measure()
    child.communicate(b"\\n")
print(before, alive, measure())
"""


@pytest.mark.parametrize(
    ("what", "code", "least"),
    [
        ("cpu", "sum(range(30_000_000))", 0.01),
        ("memory", "held = b'x' * 300_000_000; del held", 300),
    ],
)
def test_what_a_child_takes_counts_while_it_runs_and_its_time_after_it_has_ended(
    what: str, code: str, least: float
) -> None:
    command = [sys.executable, "-c", _PARENT, what, code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    before, alive, ended = map(float, done.stdout.split())
    assert alive > before + least
    assert what == "memory" or ended >= alive
