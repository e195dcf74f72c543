"""Micro-benchmarks against their baseline: the machine's speed drops out, noise is no change."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.micro import baseline
from benchmarks.micro.baseline import Baseline, Change
from tidelog.errors import ConfigError

MACHINE = {"cpu": "Some Processor @ 2.50GHz", "cores": 2}


def document(seconds: float, yardstick_s: float) -> dict[str, Any]:
    """What pytest-benchmark writes, as far as it is read."""
    return {
        "benchmarks": [
            {
                "fullname": "benchmarks/micro/test_block.py::test_encode[16]",
                "stats": {"min": seconds},
                "extra_info": {"yardstick_s": yardstick_s},
            }
        ]
    }


def measured(*runs: tuple[float, float], python: str = "3.11.9") -> Baseline:
    documents = [document(*run) for run in runs]
    return baseline.combined(documents, MACHINE, {"python": python}, "abc", "2026-01-01", 1.0)


def five(low: float, high: float) -> Baseline:
    """Runs between these times."""
    return measured(*((low + (high - low) * step / 4, 0.002) for step in range(5)))


def change(before: Baseline, now: Baseline) -> Change:
    (found,) = baseline.changes(before, now)
    return found


def test_a_machine_that_is_slower_as_a_whole_changes_nothing() -> None:
    before = five(0.010, 0.011)
    now = measured(*((seconds, 0.004) for seconds in (0.020, 0.0205, 0.021, 0.0215, 0.022)))
    found = change(before, now)
    assert found.name == "block: encode[16]"
    assert (found.ratio, found.verdict, found.seconds) == (pytest.approx(1.0), "same", 0.020)


def test_a_benchmark_that_takes_more_yardsticks_in_every_run_is_slower() -> None:
    before, now = five(0.010, 0.011), five(0.012, 0.013)
    found = change(before, now)
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(12.5 / 10.5, abs=1e-4)
    assert found.low == pytest.approx(12 / 11, abs=1e-4)
    assert found.high == pytest.approx(13 / 10, abs=1e-4)
    assert change(now, before).verdict == "faster"


@pytest.mark.parametrize(
    ("why", "now"),
    [
        ("one run reaches into the other's", five(0.0109, 0.030)),
        ("below the tolerance", five(0.0112, 0.0113)),
    ],
)
def test_a_difference_that_noise_could_make_is_none(why: str, now: Baseline) -> None:
    before = five(0.010, 0.011)
    assert change(before, now).verdict == change(now, before).verdict == "same", why


def test_few_runs_say_nothing_however_far_they_are_apart() -> None:
    before = measured((0.010, 0.002), (0.011, 0.002))
    now = measured((0.100, 0.002), (0.110, 0.002))
    assert change(before, now).verdict == "too few"
    assert change(five(0.010, 0.011), measured(*[(0.1, 0.002)] * 3)).verdict == "slower"


def test_a_benchmark_without_baseline_is_new() -> None:
    now = measured((0.010, 0.002))
    empty = Baseline(MACHINE, {"python": "3.11.9"}, None, "2026-01-01", 1.0, {}, {})
    assert change(empty, now) == Change("block: encode[16]", 0.010, None, None, None, "new")


def test_only_the_same_processor_and_minor_version_of_python_find_a_baseline(
    tmp_path: Path,
) -> None:
    kept = measured((0.010, 0.002))
    path = baseline.store(kept, tmp_path)
    assert path.name == "some-processor-2.50ghz-python-3.11.json"
    assert baseline.load(measured((1.0, 1.0), python="3.11.2").kind, tmp_path) == kept
    assert baseline.load(measured((1.0, 1.0), python="3.12.2").kind, tmp_path) is None


def test_a_damaged_baseline_says_what_to_do(tmp_path: Path) -> None:
    path = baseline.store(measured((0.010, 0.002)), tmp_path)
    path.write_text("{}")
    with pytest.raises(ConfigError, match="renew it on this machine"):
        baseline.load(path.stem, tmp_path)


def test_every_stored_baseline_can_be_read_and_lies_under_its_kind() -> None:
    for path in baseline.DIRECTORY.glob("*.json"):
        found = baseline.load(path.stem)
        assert found is not None and found.kind == path.stem
