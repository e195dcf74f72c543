"""Campaigns: the same outcomes from any number of processes, whatever becomes of them."""

import os
import signal
from pathlib import Path
from typing import Any

from tests.process.harness import started
from tests.simulator.checks.violation import Property, Violation
from tests.simulator.run.campaign import Campaign, run_campaign, run_on_workers
from tests.simulator.run.scenario import SCENARIOS
from tests.support.depth import more_in_depth

FOUR = Campaign([SCENARIOS["store"], SCENARIOS["calm"]], 30, 4)


def test_the_outcomes_do_not_depend_on_the_number_of_processes_and_none_outlives_its_reader(
    tmp_path: Path,
) -> None:
    alone = list(run_campaign(FOUR))
    assert [outcome.seed for outcome in alone] == [30, 31, 32, 33]
    for processes in more_in_depth((), (2, 3, 5)):
        assert list(run_campaign(FOUR, processes=processes)) == alone
    outcomes = run_on_workers(FOUR, 2, tmp_path)
    assert [next(outcomes) for _ in alone[:-1]] == alone[:-1]
    outcomes.close()  # type: ignore[attr-defined]
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    assert "spawn_main" not in "".join(
        Path(f"/proc/{child}/cmdline").read_text() for child in children.read_text().split()
    )


class Deadly:
    """A scenario that ends every process it is sent to."""

    name = "deadly"

    def __reduce__(self) -> Any:
        return os._exit, (7,)


def test_a_run_whose_process_dies_is_a_violation_and_the_others_go_on(tmp_path: Path) -> None:
    runs: list[Any] = [(0, Deadly()), (1, SCENARIOS["calm"]), (2, SCENARIOS["calm"])]
    found = list(run_on_workers(runs, 2, tmp_path))
    assert [outcome.seed for outcome in found] == [0, 1, 2]
    died = Violation(Property.NO_DEFECT, "the process of the run died")
    assert [outcome.violation for outcome in found] == [died, None, None]


def test_ctrl_c_ends_all_processes_and_says_what_was_done() -> None:
    command = ("--seeds", "100000", "--jobs", "2", "--new-seeds")
    process = started(*command, program="tests.simulator", start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("seeds ")
    os.killpg(process.pid, signal.SIGINT)
    # Its pipes end when the last process that holds them has.
    out, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "seeds were not run" in out
    assert "no violation" in out
