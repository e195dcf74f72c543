"""Followed files that get no lines: their reads grow rare, and listing them tells what changed."""

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import acted_on
from tidelog import ForeachSink, Job, JobRunner, TextFileSource
from tidelog.errors import SavepointFailedError, StorageError
from tidelog.storage.memory import MemoryStore

FILES = 30
SILENT_S = 600.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"{number}.log").write_text(f"first of {number}\n")
    return tmp_path


def followed(path: Path, act: Callable[[VirtualClock, list[str]], Awaitable[Any]]) -> list[str]:
    """The lines of a job that follows, is silent for ten minutes, then `act`s and stops."""
    clock, lines = VirtualClock(), list[str]()
    job = Job("logs")
    job.source(TextFileSource(path, follow=True)).sink(ForeachSink(lines.append))

    async def act_and_stop(runner: JobRunner) -> None:
        await act(clock, lines)
        with suppress(SavepointFailedError):  # it has ended
            await runner.stop()

    acted_on(job, MemoryStore(), act_and_stop, at=SILENT_S, clock=clock)
    return lines


def test_a_silent_file_is_read_a_few_times_in_ten_minutes_with_a_checkpoint_each_second(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()
    pread = os.pread

    def counted(*arguments: Any) -> bytes:
        reads["of all files"] += 1
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", counted)

    async def nothing(*_: Any) -> None:
        assert reads["of all files"] < 30 * FILES

    assert len(followed(directory, nothing)) == FILES


@pytest.mark.parametrize("path", ["", "7.log"])
def test_a_line_in_a_file_that_was_silent_for_long_is_read_within_two_seconds(
    directory: Path, path: str
) -> None:
    async def append(clock: VirtualClock, lines: list[str]) -> None:
        for line in ("second", "third"):
            with (directory / "7.log").open("a") as file:
                file.write(f"{line}\n")
            await clock.sleep(2.0)
            assert lines[-1] == line

    followed(directory / path, append)


@pytest.mark.parametrize("changed", ["removed", "replaced", "shorter"])
def test_a_silent_file_that_is_not_what_it_was_is_an_error_within_two_seconds(
    directory: Path, changed: str
) -> None:
    file = directory / "7.log"

    async def change(clock: VirtualClock, _: list[str]) -> None:
        if changed == "removed":
            file.unlink()
        elif changed == "shorter":
            file.write_text("")
        else:
            (directory / ".other").write_text("first of 8\n")
            (directory / ".other").rename(file)
        await clock.sleep(2.0)

    with pytest.raises(StorageError, match=r"7\.log"):
        followed(directory, change)
