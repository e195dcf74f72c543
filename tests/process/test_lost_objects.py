"""A store that loses objects under a running job, which has every row on its own disk: it says so,
uploads them again, and never calls a savepoint done that cannot be restored.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process import harness
from tests.process.harness import Run, killed_at_last, wait_until
from tests.process.test_kill import write_words
from tests.support.cli import tidelog

TABLES, DESCRIPTORS, LOG = "tables", "materializations", "segments"
ALL = (TABLES, DESCRIPTORS, LOG)


def stored(run: Run, *kinds: str) -> set[Path]:
    return {
        path for kind in kinds for path in Path(run.store).glob(f"{kind}/**/*") if path.is_file()
    }


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
    listed = json.loads(tidelog("checkpoints", "list", run.store, "--json").stdout)["slots"]
    [slot] = [row["slot"] for row in listed if row["name"] == name]
    [restorable] = [row["restorable"] for row in inspected["slots"] if row["slot"] == slot]
    return bool(restorable)


@pytest.mark.parametrize("kinds", [(TABLES,), (DESCRIPTORS,), (LOG,), ALL], ids="-".join)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ()),
        (("--parallelism", "3"), ("--parallelism", "2")),
        ((), ("--workers", "2")),
        (("--no-changelog",), ("--no-changelog",)),
        (("--table", "memory"), ("--table", "memory")),
        ((), ("--no-materialize",)),
    ],
    ids=["one process", "rescaled", "workers", "no log", "memory tables", "log alone"],
)
def test_a_job_stopped_after_its_store_has_lost_objects_goes_on_with_every_row(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    run, expected = job(tmp_path)
    with killed_at_last(run.start(*before)) as process:
        wait_until(lambda: has_kinds(run, TABLES, DESCRIPTORS), process)
        stop(run, "first")
        run.end(process)
    # From here on no table is uploaded but for what is lost.
    with killed_at_last(run.start(*after, "--materialize-interval", "1h")) as process:
        wait_until(more_slots(run, 3), process)
        assert lose(run, *kinds) or kinds == (LOG,)
        stop(run, "last")
        assert run.end(process).returncode == 0
    assert verdict(run, "last")
    run.release()
    run.finish(*after)
    assert run.counts() == expected


def test_a_running_job_notices_by_itself_and_uploads_what_its_store_has_lost(
    tmp_path: Path,
) -> None:
    run, expected = job(tmp_path, "--object-check-interval", "500ms")
    log = tmp_path / "log"
    with killed_at_last(run.start()) as process:
        wait_until(lambda: has_kinds(run, TABLES, DESCRIPTORS), process)
        assert tidelog("savepoint", run.store, "--name", "old").exit_code == 0
        lost = lose(run, TABLES)
        assert not verdict(run, "old")
        wait_until(lambda: all(path.exists() for path in lost & stored(run, TABLES)), process)
        run.release()
        ended = run.end(process)
    assert ended.returncode == 0, log
    assert run.counts() == expected
