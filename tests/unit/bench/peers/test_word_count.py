"""The word count of every system that is installed: right counts, and figures that add up."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tidelog.errors import TidelogError
from tidelog_bench.experiment import Reading, Setting, Size, Trial
from tidelog_bench.experiments import peers
from tidelog_bench.peers.systems import SYSTEMS, interpreter, missing, run_program
from tidelog_bench.peers.task import Task

SMALL: Mapping[str, Setting] = {
    "keys": 300,
    "key_bytes": 16,
    "skewed": False,
    "draws": 5000,
    "warm_s": 0.2,
    "seconds": 0.5,
    "checkpoint_s": 0.1,
    "batch_words": 4096,
}


def reading(variant: str, directory: Path) -> Reading:
    return peers.measure(Trial(SMALL, variant, 3, directory))


def check_figures(found: Reading) -> None:
    figures = found.figures
    assert figures["records"] > 0
    assert figures["cpu_us_per_record"] > 0
    assert figures["durable_mb"] > 300 * 16 / 1e6, "every word is durable"
    assert {"records_per_s", "commits", "peak_mb"} <= figures.keys()
    assert {"durable", "not_done"} <= found.notes.keys()


def test_tidelog_counts_right_from_its_store_alone(tmp_path: Path) -> None:
    found = reading("tidelog", tmp_path)

    check_figures(found)
    assert found.figures["records"] % 8 == 0, "whole buffers only: 5000 = 2 * 2048 + 904"


@pytest.mark.parametrize("variant", ["bytewax", "quix-store", "pathway", "pyflink"])
def test_a_peer_counts_right_from_what_it_made_durable(variant: str, tmp_path: Path) -> None:
    if reason := missing(variant):
        pytest.skip(reason)
    found = reading(variant, tmp_path)

    check_figures(found)
    assert found.notes["versions"]


def test_a_program_that_fails_tells_what_it_printed(tmp_path: Path) -> None:
    python = interpreter("tidelog")
    assert python is not None
    task = Task(**SMALL, variant="x", seed=1, directory=str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(TidelogError, match=r"(?s)exit code 1.*No module named"):
        run_program(python, "no_such_program", task)


def test_every_size_asks_every_installed_system_for_the_same_words() -> None:
    for size in Size:
        for cell in peers.cells(size):
            assert cell.variants[0] == "tidelog"
            assert set(cell.variants) <= SYSTEMS.keys()
            assert cell.settings.keys() == SMALL.keys()
            assert cell.settings["checkpoint_s"] == 1.0
