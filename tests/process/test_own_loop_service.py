"""A service with asyncio that is killed at any moment forgets nothing that it has answered."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import tidelog
from tests.process import harness
from tests.support.depth import more_in_depth
from tidelog import Value

KILLS = more_in_depth(2, 40)
CLIENTS = 5


def start(directory: Path) -> "subprocess.Popen[str]":
    arguments = [str(directory / each) for each in ("store", "port")]
    program = [sys.executable, "-m", "tests.process.own_loop_service", *arguments]
    return subprocess.Popen(program, cwd=harness.ROOT, stderr=subprocess.PIPE, text=True)


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
        with harness.killed_at_last(start(tmp_path)) as process:
            harness.wait_until((tmp_path / "port").exists, process)
            port = int((tmp_path / "port").read_text())
            asyncio.run(ask_and_kill(process, port, rng.randrange(20, 200), [answered, sent]))
    with tidelog.open(str(tmp_path / "store"), {"hits": Value(int)}) as db:
        for name, count in answered.items():
            assert count <= (db.key(name).hits.get() or 0) <= sent[name]
