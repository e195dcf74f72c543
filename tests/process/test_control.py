"""`tidelog savepoint` and `tidelog stop` ask a real process, which answers or is dead."""

import json
import os
import random
import shutil
import signal
import socket
import stat
import tempfile
import time
from pathlib import Path

import pytest

from tests.process.harness import GIVE_UP_S, Run, killed_at_last, started, wait_until
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth
from tidelog.runtime.control.protocol import DIRECTORY_VARIABLE, socket_of


def copying(tmp_path: Path, *options: str) -> tuple[Run, list[str]]:
    """A job that copies lines, and the lines."""
    run = Run(tmp_path, "tests.process.jobs:copy", ("--parallelism", "2", *options))
    lines = [f"line {number} of {file}" for file in range(3) for number in range(1_500)]
    for file in range(3):
        text = "".join(f"{line}\n" for line in lines[file * 1_500 : (file + 1) * 1_500])
        (run.input / f"{file}.txt").write_text(text)
    return run, lines


def write_lines(run: Run) -> None:
    (run.input / "lines.txt").write_text("".join(f"line {n}\n" for n in range(1_500)))


def url(run: Run) -> str:
    return Path(run.store).as_uri()


def answer(*arguments: str) -> dict[str, object]:
    done = tidelog(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def connected(path: Path) -> bool:
    """Whether somebody is connected to a socket on which a process listens."""
    sockets = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(f" {path}") for line in sockets) > 1


# A canonical one starts a job on another store, below.
@pytest.mark.parametrize("format", more_in_depth(["native"], ["native", "canonical"]))
@pytest.mark.parametrize("table", more_in_depth(["rocksdb"], ["rocksdb", "memory"]))
def test_a_job_that_was_asked_for_savepoints_and_stopped_goes_on_without_loss_or_duplicate(
    tmp_path: Path, format: str, table: str
) -> None:
    run, lines = copying(tmp_path, "--table", table)
    with killed_at_last(run.start()) as process:
        wait_until(lambda: len(run.lines()) > 50, process)
        taken = answer("savepoint", run.store, "--name", "before", "--format", format)
        assert (taken["name"], taken["savepoint_format"]) == ("before", format)
        assert (taken["stopped"], taken["job"]) == (False, "copy")
        assert process.poll() is None, "it goes on"
        stopped = answer("stop", run.store, "--savepoint", "halt", "--format", format)
        assert stopped["stopped"] and not stopped["drained"]
        done = run.end(process)
    assert done.returncode == 0, done.stderr
    assert "stopped with savepoint halt" in done.stderr
    before = run.lines()
    assert len(before) < len(lines)
    run.release()
    result = json.loads(run.finish_here("--json").stdout.splitlines()[-1])
    assert result["restored_checkpoint"] == stopped["checkpoint"]
    assert result["records_read"] < len(lines)
    assert sorted(run.lines()) == sorted(lines)
    assert set(before) <= set(run.lines())
    listed = json.loads(tidelog("checkpoints", "list", run.store, "--json").stdout)["checkpoints"]
    assert [row["name"] for row in listed if row["kind"] == "savepoint"] == ["before", "halt"]
    assert tidelog("inspect", run.store, "--deep").exit_code == 0
    assert tidelog("verify", run.store, "--engine", "local").exit_code == 0


def test_the_socket_is_the_users_alone_and_goes_with_the_job(tmp_path: Path) -> None:
    run, _ = copying(tmp_path)
    path = socket_of(url(run))
    with killed_at_last(run.start()) as process:
        wait_until(lambda: tidelog("savepoint", run.store).exit_code == 0, process)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.parent.stat().st_uid == os.getuid()
        if os.getuid() == 0:  # only root can become another user
            assert connected_as(0, path) == "connected"
            assert connected_as(65534, path) == "refused"
        run.release()
        run.end(process)
    assert not path.exists()


def connected_as(user: int, path: Path) -> str:
    """What becomes of a connection by this user, tried in a process of its own."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        try:
            socket.socket(socket.AF_UNIX).connect(str(path))
        except PermissionError:
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    return ["connected", "refused", "failed"][os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


def test_a_socket_that_a_killed_job_left_is_no_job_and_no_hindrance(tmp_path: Path) -> None:
    run, lines = copying(tmp_path)
    path = socket_of(url(run))
    with killed_at_last(run.start()) as process:
        wait_until(path.exists, process)
    assert path.exists()
    assert "found none" in tidelog("savepoint", run.store).stderr
    with killed_at_last(run.start()) as process:
        wait_until(lambda: tidelog("savepoint", run.store).exit_code == 0, process)
        run.release()
        run.end(process)
    assert sorted(run.lines()) == sorted(lines)


def test_a_job_is_found_again_after_its_directory_of_sockets_was_removed(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tlc") as made:
        env = {DIRECTORY_VARIABLE: f"{made}/sockets"}
        run = Run(tmp_path, "tests.process.jobs:copy", env=env)
        write_lines(run)
        with killed_at_last(run.start()) as process:
            for _ in range(2):
                wait_until(lambda: tidelog("savepoint", run.store, env=env).exit_code == 0, process)
                shutil.rmtree(f"{made}/sockets")
            wait_until(lambda: tidelog("stop", run.store, env=env).exit_code == 0, process)
            assert run.end(process).returncode == 0


LISTENS = "00010000"
"""Flag of a socket that takes connections, in /proc/net/unix."""


def listens(path: Path) -> bool:
    sockets = map(str.split, Path("/proc/net/unix").read_text().splitlines())
    return any(fields[-1] == str(path) and fields[3] == LISTENS for fields in sockets)


def test_who_waits_for_a_job_that_is_killed_is_told_that_it_ended(tmp_path: Path) -> None:
    run, _ = copying(tmp_path)
    path = socket_of(url(run))
    with killed_at_last(run.start()) as process:
        wait_until(lambda: listens(path), process)
        process.send_signal(signal.SIGSTOP)
        client = started("stop", run.store)
        wait_until(lambda: connected(path), client)
        process.kill()
        out, err = client.communicate(timeout=GIVE_UP_S)
    assert (client.returncode, out) == (1, "")
    assert "found that it ended meanwhile" in err


def test_a_job_killed_during_a_savepoint_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run, lines = copying(tmp_path)
    rng = random.Random(20260101)
    path = socket_of(url(run))
    for attempt, format in enumerate(["native", "canonical"] * more_in_depth(1, 4)):
        path.unlink(missing_ok=True)
        with killed_at_last(run.start()) as process:
            wait_until(path.exists, process)
            client = started("savepoint", run.store, "--name", f"s{attempt}", "--format", format)
            # It may have its answer already.
            wait_until(lambda asked=client: connected(path) or asked.poll() is not None, process)
            time.sleep(rng.uniform(0, 0.3))
            assert process.poll() is None
        client.communicate(timeout=GIVE_UP_S)
        shown = run.lines()
        assert len(shown) == len(set(shown))
    run.release()
    run.finish_here()
    assert sorted(run.lines()) == sorted(lines)
    assert tidelog("inspect", run.store, "--deep").exit_code == 0
