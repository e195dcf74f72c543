"""What a process takes when its rows are large: its budget, and little more."""

import sys
from pathlib import Path

import pytest

from tests.process.harness import Run
from tests.process.memory_job import BODY, ROWS
from tests.support.depth import more_in_depth

BUDGET = 64 << 20


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
