"""The same seed gives the same trace: in one process, in two, whatever their hash seeds are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.run.campaign import run_seed
from tests.simulator.run.scenario import SCENARIOS
from tests.support.depth import more_in_depth

SEEDS = range(more_in_depth(1, 3))
SEEDS_PER_SCENARIO = more_in_depth(1, 2)
WITHOUT_THREADS = sorted(SCENARIOS.keys() - {"rocksdb"})
TOLD = more_in_depth(["disk", "everything", "lifecycle", "rules"], WITHOUT_THREADS)
PROGRAM = """
import sys
from pathlib import Path
from tests.simulator.run.campaign import run_seed
from tests.simulator.run.scenario import SCENARIOS
for name in sys.argv[3:]:
    for seed in range(int(sys.argv[2])):
        print(name, seed, run_seed(seed, SCENARIOS[name], Path(sys.argv[1]) / name).digest)
"""


@pytest.mark.parametrize("name", ["store", "everything"])
def test_a_seed_repeats_its_trace_event_by_event(name: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        traces: list[list[str]] = [[], []]
        digests = [
            run_seed(seed, SCENARIOS[name], tmp_path / f"{seed}-{at}", trace.append).digest
            for at, trace in enumerate(traces)
        ]
        assert traces[0] == traces[1]
        assert digests[0] == digests[1]
        assert len(traces[0]) > 10


def test_another_seed_gives_another_trace(tmp_path: Path) -> None:
    outcomes = [run_seed(n, SCENARIOS["store"], tmp_path / str(n)) for n in range(5)]
    assert len({outcome.digest for outcome in outcomes}) == 5


def test_two_processes_with_different_hash_seeds_give_the_same_traces(tmp_path: Path) -> None:
    printed = []
    command = (sys.executable, "-c", PROGRAM)
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [*command, str(tmp_path / hash_seed), str(SEEDS_PER_SCENARIO), *TOLD],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(done.stdout.splitlines())
    assert len(printed[0]) == SEEDS_PER_SCENARIO * len(TOLD)
    assert printed[0] == printed[1]
