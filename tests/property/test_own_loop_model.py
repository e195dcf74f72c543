"""A program with its own loop finds what its positions say, whatever has ended it before."""

import subprocess
from pathlib import Path

import pytest

from tests.process import harness
from tests.support.depth import more_in_depth

SEEDS = more_in_depth(10, 200)
LIVES = 5


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_program_of_threads_and_tasks_finds_what_a_dict_would_have(
    tmp_path: Path, seed: int
) -> None:
    life, url = 0, str(tmp_path / "store")
    while life < LIVES:
        process = harness.started(
            *(url, str(seed), str(life), str(LIVES)), program="tests.property.own_loop_model"
        )
        try:
            said, errors = process.communicate(timeout=harness.GIVE_UP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode in (0, -9), errors
        life = LIVES if process.returncode == 0 else int(said.split()[-1]) + 1
