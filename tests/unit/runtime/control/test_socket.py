"""The control socket answers one line to one line, to its own user, and never takes a job down.

A running job tells all its figures through its control socket.
"""

import asyncio
import json
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, running, word_count, words
from tests.unit.runtime.test_status import counting_job, runner_of
from tidelog import AccessDeniedError, ControlError, JobRunner, StorageError, serve_control
from tidelog.effects import Effects
from tidelog.runtime.control import client, protocol, server
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import (
    DIRECTORY_VARIABLE,
    LIMIT_BYTES,
    Done,
    Failed,
    Request,
    decode_line,
    encode,
    socket_of,
)
from tidelog.storage.memory import MemoryStore

URL = "memory://controlled"


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: those of sockets are limited to about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="tlc") as made:
        chosen = Path(made) / "sockets"
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(chosen))
        yield chosen


@asynccontextmanager
async def served() -> AsyncIterator[Path]:
    """The socket of a job that has not started."""
    effects = Effects()
    runner = JobRunner(word_count(words(), Outside()), MemoryStore(URL), config(), effects)
    async with serve_control(runner) as path:
        yield path
    effects.offload.close()
    assert not socket_of(URL).exists()


async def raw(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\n", "one JSON object"),
        (b"\xff\xfe\n", "one JSON object"),
        (b'{"version": 1}\n', "one JSON object"),
        pytest.param(
            b'{"version": 1, "later": ' + b"[" * 30_000 + b"\n", "one JSON object", id="deep"
        ),
        (b'{"version": 2, "anything": []}\n', "found version 2"),
        (encode(Request("memory://other", "status")), "expected memory://other"),
        (
            encode(Request(URL, "status", job="other")),
            "the name of the job that runs here; expected other",
        ),
    ],
)
async def test_what_it_cannot_answer_it_refuses_with_the_reason(
    data: bytes, said: str, logged: Callable[[str], list[dict[str, Any]]]
) -> None:
    async with served() as path:
        line = decode_line(await raw(path, data))
        assert isinstance(line, Failed)
        assert said in str(line.error())
    [refused] = logged("control_refused")
    assert said in str(refused["error"])


@pytest.mark.parametrize("data", [b"", b"x" * (LIMIT_BYTES * 3), b'{"version": 1'])
async def test_lines_that_never_end_and_clients_that_go_away_do_no_harm(data: bytes) -> None:
    async with served() as path:
        with suppress(ConnectionError):
            await raw(path, data)
        assert (await ask(Request(URL, "status"))).job == "word-count"


async def test_a_job_that_hangs_keeps_nobody_waiting_for_ever(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SILENCE_S", 0.01)
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(socket_of(URL)))
        hanging.listen()
        with pytest.raises(ControlError, match="nothing from it"):
            await ask(Request(URL, "stop"))


async def test_a_newer_job_takes_the_name_over_and_keeps_it_when_the_older_ends() -> None:
    effects = Effects()
    store = MemoryStore(URL)
    older = JobRunner(word_count(words(), Outside()), store, config(), effects)
    newer = JobRunner(word_count(words(), Outside()), store, config(), effects)
    newer.job.name = "newer"
    serving_older = serve_control(older)
    await serving_older.__aenter__()
    async with serve_control(newer):
        assert (await ask(Request(URL, "status"))).job == "newer"
        await serving_older.__aexit__(None, None, None)
        assert (await ask(Request(URL, "status"))).job == "newer"
    with pytest.raises(ControlError, match="found none"):
        await ask(Request(URL, "status"))
    effects.offload.close()


async def found_at_last() -> str:
    """The name of the job that answers, once one does."""
    while True:
        try:
            return (await ask(Request(URL, "status"))).job
        except ControlError:
            await asyncio.sleep(0)


async def test_a_socket_is_made_anew_when_its_directory_is_removed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, logged: Callable[[str], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(server, "RENEWAL_S", 0.01)
    async with served():
        for _ in range(2):
            shutil.rmtree(directory)
            assert await found_at_last() == "word-count"
    assert len(logged("control_socket_renewed")) == 2


async def test_a_job_that_could_have_no_socket_at_its_start_gets_one_later(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RENEWAL_S", 0.01)
    directory.write_text("a file in its place")
    effects, ended = Effects(), asyncio.get_running_loop().create_future()
    runner = JobRunner(word_count(words(), Outside()), MemoryStore(URL), config(), effects)
    complaints: list[StorageError] = []
    controlling = asyncio.ensure_future(server.control_until(ended, runner, complaints.append))
    while not complaints:
        await asyncio.sleep(0)
    directory.unlink()
    assert await found_at_last() == "word-count"
    ended.set_result(None)
    await controlling
    effects.offload.close()
    assert len(complaints) == 1


async def test_a_job_in_a_unit_is_found_without_its_environment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = directory.parent / "run"
    monkeypatch.setattr(protocol, "UNITS", units)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(units / "revenue"))
    async with served():
        monkeypatch.delenv(DIRECTORY_VARIABLE)
        assert (await ask(Request(URL, "status"))).job == "word-count"
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(units / "revenue"))


async def test_a_directory_that_others_may_write_to_is_not_used(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(StorageError, match="others may write to it"):
        async with served():
            raise AssertionError("it was served")


async def test_a_socket_that_another_user_opened_to_all_is_not_believed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(directory.parent))
    forged = directory.parent / "tidelog-control-31337" / socket_of(URL).name
    forged.parent.mkdir()
    asked = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(encode(Done("word-count", 1, name="taken")))
        writer.close()

    async with await asyncio.start_unix_server(answer, str(forged)):
        forged.chmod(0o666)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(AccessDeniedError, match=r"the user who owns .*31337"):
            await ask(Request(URL, "savepoint"))
        assert asked == []
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert (await ask(Request(URL, "savepoint"))).name == "taken", "root asks all users'"


async def observed(runner: JobRunner, checkpoints: int) -> Done:
    """The answer of a job that has completed so many checkpoints."""
    async with running(runner) as task, serve_control(runner):
        while True:
            done = await ask(Request(URL, "observe"))
            if len(done.checkpoints) >= checkpoints:
                return done
            assert not task.done(), task


def test_a_running_job_tells_its_status_and_its_checkpoints(tmp_path: Path) -> None:
    job, _ = counting_job(limit=None)
    store = MemoryStore(URL)
    done = asyncio.run(observed(runner_of(job, store, tmp_path), checkpoints=3))
    assert done.job == done.status["job"] == "counting" and done.status["phase"] == "running"
    assert done.status["checkpoints"]["completed"] >= 3
    assert [each["id"] for each in done.status["operators"]]
    slots = [each["checkpoint"] for each in done.checkpoints]
    assert slots == list(range(slots[0], slots[0] + len(slots)))
    for each in done.checkpoints:
        assert sum(each["phases"].values()) == pytest.approx(each["seconds"])
        assert min(each["phases"].values()) >= 0
        assert each["manifest_bytes"] > 0 and each["savepoint"] is None
    guide = (Path(__file__).parents[4] / "docs" / "guides" / "savepoints.md").read_text()
    first = done.checkpoints[0]
    told = {*first, *first["phases"], "status", "checkpoints"}
    assert {name for name in told if f"`{name}`" not in guide} == set()
    assert json.loads(json.dumps(done.status)) == done.status
