"""A store that loses objects under a running job, which has every row on its own disk: it says so,
uploads them again, and never calls a savepoint done that cannot be restored.
"""

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process import harness
from tests.process.harness import Run, killed_at_last, wait_until
from tests.process.test_kill import write_words
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Request
from tidelog.ui.live import status_in

TABLES, DESCRIPTORS, LOG = "tables", "materializations", "segments"
ALL = (TABLES, DESCRIPTORS, LOG)


def stored(run: Run, *kinds: str) -> set[Path]:
    endings = {".sst", ".json", ".seg"}  # not what is being written under another name
    paths = (path for kind in kinds for path in Path(run.store, kind).rglob("*"))
    return {path for path in paths if path.suffix in endings}


def lose(run: Run, *kinds: str) -> set[Path]:
    """Delete all objects of these kinds, as a lifecycle rule of the bucket would."""
    lost = stored(run, *kinds)
    for path in lost:
        path.unlink(missing_ok=True)
    return lost


def job(tmp_path: Path, *options: str) -> tuple[Run, dict[str, int]]:
    run = Run(tmp_path, "tests.process.jobs:wordcount", ("--parallelism", "2", *options))
    return run, write_words(run, 700)


def stop(run: Run, name: str) -> None:
    stopped = harness.tidelog("stop", run.store, "--savepoint", name)
    assert stopped.returncode == 0, stopped.stderr


def more_slots(run: Run, number: int) -> Callable[[], bool]:
    upto = run.slots() + number
    return lambda: run.slots() >= upto


def has_kinds(run: Run, *kinds: str) -> bool:
    return all(stored(run, kind) for kind in kinds)


def verdict(run: Run, name: str) -> bool:
    """Whether the savepoint of this name can be restored, as every byte says."""
    inspected = json.loads(tidelog("inspect", run.store, "--deep", "--json").stdout)
    listed = json.loads(tidelog("checkpoints", "list", run.store, "--json").stdout)["checkpoints"]
    [number] = [row["checkpoint"] for row in listed if row["name"] == name]
    [restorable] = [
        row["restorable"] for row in inspected["checkpoints"] if row["checkpoint"] == number
    ]
    return bool(restorable)


SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "one process": ((), ()),
    "rescaled": (("--parallelism", "3"), ("--parallelism", "2")),
    "workers": ((), ("--workers", "2")),
    "no log": (("--no-changelog",), ("--no-changelog",)),
    "memory tables": (("--table", "memory"), ("--table", "memory")),
    "log alone": ((), ("--no-materialize-enabled",)),
}
"""Options of the start that stores what is lost, and of the one that runs then."""
EACH_KIND = [(TABLES,), (DESCRIPTORS,), (LOG,)]
CASES = [
    *((shape, ALL) for shape in SHAPES),
    *(("rescaled", kinds) for kinds in EACH_KIND),
    *more_in_depth([], [(shape, kinds) for shape in SHAPES for kinds in EACH_KIND]),
]


@pytest.mark.parametrize(("shape", "kinds"), dict.fromkeys(CASES))
def test_a_job_stopped_after_its_store_has_lost_objects_goes_on_with_every_row(
    tmp_path: Path, shape: str, kinds: tuple[str, ...]
) -> None:
    run, expected = job(tmp_path)
    before, after = SHAPES[shape]
    with killed_at_last(run.start(*before)) as process:
        # Small tables in memory have no files, but lie in their descriptors.
        tables = () if shape == "memory tables" else (TABLES,)
        wait_until(lambda: has_kinds(run, DESCRIPTORS, *tables), process)
        stop(run, "first")
        run.end(process)
    # From here on no table is uploaded but for what is lost.
    with killed_at_last(run.start(*after, "--materialize-interval", "1h")) as process:
        wait_until(more_slots(run, 3), process)
        lose(run, *kinds)
        stop(run, "last")
        assert run.end(process).returncode == 0
    assert verdict(run, "last")
    run.release()
    run.finish(*after)
    assert run.counts() == expected


@contextmanager
def running_on_its_own_rows(run: Run, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """The job restored from the savepoint `first`, which uploads no table but for what is lost."""
    with killed_at_last(run.start()) as process:
        wait_until(lambda: has_kinds(run, TABLES, DESCRIPTORS), process)
        stop(run, "first")
        run.end(process)
    with killed_at_last(run.start("--materialize-interval", "1h", *options)) as process:
        wait_until(more_slots(run, 3), process)
        yield process


def observed(run: Run) -> Any:
    """The figures of the running job's checkpoints."""
    request = Request(Path(run.store).as_uri(), "observe")
    return status_in(asyncio.run(ask(request)))["checkpoints"]


def test_a_running_job_notices_by_itself_and_uploads_what_its_store_has_lost(
    tmp_path: Path,
) -> None:
    run, expected = job(tmp_path)
    with running_on_its_own_rows(run, "--checkpoint-object-check-interval", "300ms") as process:
        assert lose(run, TABLES)
        wait_until(lambda: observed(run)["objects_lost"] > 0, process)
        wait_until(lambda: verdict(run, "first"), process)
        wait_until(lambda: observed(run)["objects_missing"] == 0, process)
        figures = observed(run)
        assert figures["objects_uploaded_again"] == figures["objects_lost"]
        run.release()
        ended = run.end(process)
    assert "the store has lost " in ended.stderr
    assert "uploaded again, as the store had lost it: " in ended.stderr
    assert run.counts() == expected
    assert tidelog("inspect", run.store, "--deep").exit_code == 0


def test_what_local_copies_have_of_older_checkpoints_is_uploaded_again(tmp_path: Path) -> None:
    run, _ = job(tmp_path, "--local-recovery", str(tmp_path / "copies"))
    with running_on_its_own_rows(run, "--checkpoint-object-check-interval", "300ms") as process:
        assert lose(run, TABLES, LOG)
        wait_until(lambda: tidelog("inspect", run.store, "--deep").exit_code == 0, process)
        assert verdict(run, "first")


def test_who_asks_before_the_job_has_noticed_is_told_to_take_a_canonical_savepoint(
    tmp_path: Path,
) -> None:
    run, expected = job(tmp_path)
    with running_on_its_own_rows(run) as process:
        lose(run, TABLES)
        page = str(tmp_path / "page.html")
        for command in (["inspect", run.store], ["report", run.store, "--output", page]):
            said = tidelog(*command)
            assert said.exit_code == 1
            assert "take a canonical savepoint before you stop the job" in said.stdout
            assert "restore checkpoint" not in said.stdout, "every checkpoint needs those files"
        taken = tidelog("savepoint", run.store, "--name", "rows", "--format", "canonical")
        assert taken.exit_code == 0, taken.stderr
        assert verdict(run, "rows") and not verdict(run, "first")
        process.kill()
    run.release()
    run.finish("--from", "@rows")
    assert run.counts() == expected


def test_a_native_savepoint_is_not_done_while_the_store_loses_what_it_names(tmp_path: Path) -> None:
    run, _ = job(tmp_path)
    with running_on_its_own_rows(run) as process, losing_all_the_time(run, TABLES):
        wait_until(lambda: not stored(run, TABLES), process)
        for command in (["savepoint", run.store, "--name"], ["stop", run.store, "--savepoint"]):
            refused = tidelog(*command, "last")
            assert refused.exit_code == 1
            assert "gone from the store" in refused.stderr
            assert "canonical" in refused.stderr
        assert process.poll() is None, "it goes on"
        stopped = tidelog("stop", run.store, "--savepoint", "rows", "--format", "canonical")
        assert stopped.exit_code == 0, stopped.stderr
        assert run.end(process).returncode == 0
    assert verdict(run, "rows")


@contextmanager
def losing_all_the_time(run: Run, *kinds: str) -> Iterator[None]:
    """Something deletes every object of these kinds soon after it was written."""
    ended = threading.Event()

    def delete() -> None:
        while not ended.wait(0.001):
            lose(run, *kinds)

    deleting = threading.Thread(target=delete)
    deleting.start()
    try:
        yield
    finally:
        ended.set()
        deleting.join()
