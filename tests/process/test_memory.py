"""What a process takes when its rows are large: its budget, and little more."""

import sys
import time
from pathlib import Path

import pytest

from tests.process.harness import GIVE_UP_S, Run, killed_at_last, started
from tests.process.memory_job import BODY, OVERLAPPING, ROWS, WINDOWS
from tests.support.depth import more_in_depth, only_in_depth

BUDGET = 64 << 20
MINUTES = 15
"""How long the soak runs."""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("parallelism", more_in_depth(["2"], ["1", "2"]))
def test_resident_memory_grows_by_no_more_than_twice_the_budget(
    tmp_path: Path, parallelism: str
) -> None:
    """Twice, because `malloc` keeps some of what was freed."""
    run = Run(
        tmp_path,
        "tests.process.memory_job:job",
        ("--memory", str(BUDGET), "--parallelism", parallelism),
    )
    run.finish()
    assert ROWS * BODY > 1.5 * BUDGET
    assert int(run.output.read_text()) <= 2 * BUDGET


def growth(*arguments: str) -> int:
    """By how much the memory of a program with large values grew."""
    process = started(*arguments, program="tests.process.large_values")
    said, errors = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == 0, errors
    return int(said)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("state", more_in_depth(["map"], ["map", "value"]))
def test_a_large_value_is_in_memory_three_times_at_most(tmp_path: Path, state: str) -> None:
    size = 64 << 20
    assert growth("one", str(tmp_path / "store"), state, str(size)) <= 3.1 * size


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("state", more_in_depth(["value"], ["map", "value"]))
def test_one_long_step_with_large_values_takes_little_more_than_twice_the_budget(
    tmp_path: Path, state: str
) -> None:
    assert growth("step", str(tmp_path / "store"), state, str(BUDGET)) <= 2.5 * BUDGET


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("how", ["inner", "outer"])
def test_a_join_of_records_that_are_in_thousands_of_windows_stays_within_twice_the_budget(
    tmp_path: Path, how: str
) -> None:
    """An outer join keeps a record for each of its windows, in more rows than the budget holds."""
    run = Run(tmp_path, f"tests.process.memory_job:{how}", ("--memory", str(BUDGET)))
    finished = run.finish("--parallelism", "1")
    assert "in 3,600 windows" in finished.stderr, "the warning when the job is built"
    most, pairs = map(int, run.output.read_text().split())
    assert pairs == OVERLAPPING * WINDOWS
    assert 2 * OVERLAPPING * WINDOWS * 1_000 > 2 * BUDGET
    assert most <= 2 * BUDGET


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@only_in_depth("tests/unit/state/test_states.py has that deleted rows leave memory")
def test_a_job_whose_windows_close_for_a_quarter_of_an_hour_takes_no_more_memory_than_at_first(
    tmp_path: Path,
) -> None:
    options = ("--memory", "64MiB", "--materialize-interval", "20s", "--quiet")
    command = ("run", "tests.process.memory_job:soak", "--store", str(tmp_path / "store"))
    taken: list[int] = []
    with killed_at_last(started(*command, *options)) as process:
        for _ in range(4 * MINUTES):
            time.sleep(15)
            assert process.poll() is None
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            (line,) = [line for line in status if line.startswith("RssAnon:")]
            taken.append(int(line.split()[1]))
    quarter = len(taken) // 4
    early, late = taken[quarter : 2 * quarter], taken[-quarter:]
    assert sum(late) / len(late) < 1.1 * sum(early) / len(early), taken
