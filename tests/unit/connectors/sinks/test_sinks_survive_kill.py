"""A process killed while it commits: its successor finds every record once."""

import multiprocessing
import signal
from pathlib import Path

import pytest

from tests.support.depth import DEEP
from tests.unit.connectors.sinks.job import context
from tests.unit.connectors.sinks.killed import NUMBERS, Phase, write
from tests.unit.connectors.sinks.outputs import output

STEPS: dict[tuple[str, Phase], tuple[int, ...]] = {
    ("files", "commit"): (0, 1, 2, 3, 4),
    ("files", "pre_commit"): (0, 1),
    ("sqlite", "commit"): (0, 4, 16, 30),
    ("sqlite", "pre_commit"): (2, 4, 15),
    # BEGIN, fence, what is committed, move, record, COMMIT; at step 6 all of it is done.
    ("postgres", "commit"): (0, 1, 2, 3, 4, 5, 6),
    # BEGIN, fence, COPY, COMMIT; at step 4 all of it is done.
    ("postgres", "pre_commit"): (0, 1, 2, 3, 4),
    # test_killed_iceberg.py kills jobs that commit, test_every_call_fails.py has all its calls.
    ("iceberg", "commit"): tuple(range(11)) if DEEP else (),
    ("iceberg", "pre_commit"): tuple(range(5)) if DEEP else (),
}
DONE = {("sqlite", "commit"): 30, ("postgres", "commit"): 6, ("iceberg", "commit"): 9}
"""The step by which a commit is done."""


@pytest.mark.parametrize(
    ("kind", "phase", "step"), [(*case, step) for case, steps in STEPS.items() for step in steps]
)
def test_what_a_killed_process_pre_committed_is_shown_once_and_nothing_else(
    kind: str, phase: Phase, step: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out, numbers = output(kind, request), list(NUMBERS)
    conninfo = request.getfixturevalue("conninfo") if kind == "postgres" else ""
    arguments = (kind, tmp_path, conninfo, phase, step)
    process = multiprocessing.get_context("spawn").Process(target=write, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    shown = out.shown()
    if kind == "files":
        assert shown == numbers[: len(shown)], "some of its files"
    else:
        done = phase == "commit" and step >= DONE[kind, phase]
        assert shown == (numbers if done else []), "all or nothing"
    committed = [(tmp_path / "transaction").read_bytes()] if phase == "commit" else []
    for generation in (2, 3):
        out.sink().open(context(generation)).recover(committed)
        assert out.shown() == (numbers if committed else [])
        assert out.hidden() == 0
