"""Programs with a loop of their own, killed at any moment: every word counts once, and no
answer of a service is forgotten."""

import asyncio
import os
import random
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path

import tidelog
from tests.process import harness
from tests.support import cli
from tests.support.depth import more_in_depth
from tests.support.output_files import output_lines
from tidelog import MapState, ValueState

KILLS = more_in_depth(2, 20)
WORDS = more_in_depth(20_000, 100_000)


def start(directory: Path) -> "subprocess.Popen[str]":
    arguments = [str(directory / each) for each in ("store", "lines.txt", "released", "out")]
    return harness.started(*arguments, program="tests.process.own_loop")


def test_every_word_is_counted_and_written_once_however_often_the_program_is_killed(
    tmp_path: Path,
) -> None:
    rng = random.Random(1711)
    words = [f"w{min(rng.randrange(300), rng.randrange(300))}" for _ in range(WORDS)]
    lines = [" ".join(words[at : at + 5]) for at in range(0, len(words), 5)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    for _ in range(KILLS):
        wanted = harness.newest_slot(tmp_path / "store") + rng.randrange(1, 5)
        with harness.killed_at_last(start(tmp_path)) as process:
            harness.wait_until(
                lambda wanted=wanted: harness.newest_slot(tmp_path / "store") >= wanted, process
            )
            time.sleep(rng.random() * 0.05)
    (tmp_path / "released").touch()
    ended = start(tmp_path)
    _, errors = ended.communicate(timeout=harness.GIVE_UP_S)
    assert ended.returncode == 0, errors
    url = str(tmp_path / "store")
    with tidelog.open(url, state={"count": ValueState(int), "files": MapState(str, int)}) as db:
        assert db.position == {"lines": os.stat(tmp_path / "lines.txt").st_size}  # noqa: PTH116
        counts = {word: db.key(word).count.get() for word in set(words)}
    assert counts == Counter(words)
    expected = sorted((word, n) for word, count in counts.items() for n in range(1, count + 1))
    lines = [line.split() for line in output_lines(tmp_path / "out")]
    assert sorted((word, int(n)) for word, n in lines) == expected
    rows = sqlite3.connect(tmp_path / "out.db").execute("select word, n from counts")
    assert sorted(rows) == expected
    assert cli.tidelog("inspect", url, "--deep").exit_code == 0
    assert cli.tidelog("verify", url, "--engine", "local").exit_code == 0


CLIENTS = 5


def start_service(directory: Path) -> "subprocess.Popen[str]":
    arguments = [str(directory / each) for each in ("store", "port")]
    return harness.started(*arguments, program="tests.process.own_loop_service")


async def ask(port: int, name: str, answered: Counter[str], sent: Counter[str]) -> None:
    """Ask for one name until the connection breaks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            sent[name] += 1
            writer.write(f"{name}\n".encode())
            count = await reader.readline()
            if not count:
                return
            assert answered[name] < int(count) <= sent[name]
            answered[name] = int(count)
    except ConnectionError:
        return
    finally:
        writer.close()


async def ask_and_kill(
    process: "subprocess.Popen[str]", port: int, kill_at: int, counts: list[Counter[str]]
) -> None:
    answered, sent = counts
    asking = [asyncio.ensure_future(ask(port, f"c{n}", answered, sent)) for n in range(CLIENTS)]
    begun = answered.total()
    while answered.total() < begun + kill_at:
        assert not any(each.done() for each in asking)
        await asyncio.sleep(0.001)
    process.kill()
    await asyncio.gather(*asking)


def test_what_was_answered_is_never_forgotten_however_often_it_is_killed(tmp_path: Path) -> None:
    rng = random.Random(2026)
    answered: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for _ in range(KILLS):
        (tmp_path / "port").unlink(missing_ok=True)
        with harness.killed_at_last(start_service(tmp_path)) as process:
            harness.wait_until((tmp_path / "port").exists, process)
            port = int((tmp_path / "port").read_text())
            asyncio.run(ask_and_kill(process, port, rng.randrange(20, 200), [answered, sent]))
    with tidelog.open(str(tmp_path / "store"), {"hits": ValueState(int)}) as db:
        for name, count in answered.items():
            assert count <= (db.key(name).hits.get() or 0) <= sent[name]
