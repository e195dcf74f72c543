"""The example finds the outages that plain Python finds in its input."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from tidelog.examples.outages import main
from tidelog.examples.outages_function import GAP_MS, KEPT, MAX_DELAY_MS


def outages(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def expected(directory: Path) -> list[dict[str, Any]]:
    """All readings at once, sorted; the newest ones wait for others that never come."""
    lines = [line for file in directory.iterdir() for line in file.read_text().splitlines()]
    readings = [json.loads(line) for line in lines]
    passed = max(each["time_ms"] for each in readings) - MAX_DELAY_MS
    devices: dict[str, dict[int, float]] = defaultdict(dict)
    for each in readings:
        if each["time_ms"] < passed:
            held = devices[each["device"]]
            held[each["time_ms"]] = max(each["value"], held.get(each["time_ms"], 0))
    found = []
    for device, held in devices.items():
        times, since, number = sorted(held), 0, 0
        for at in range(1, len(times)):
            if times[at] - times[at - 1] > GAP_MS:
                number += 1
                found.append(
                    {
                        "device": device,
                        "number": number,
                        "silent_from_ms": times[at - 1],
                        "silent_ms": times[at] - times[at - 1],
                        "before": [held[t] for t in times[since:at]][-KEPT:],
                        "after": held[times[at]],
                    }
                )
                since = at
    return found


def test_its_lines_are_the_silences_of_the_sorted_readings(tmp_path: Path) -> None:
    readings = tmp_path / "in"
    found = outages("--input", readings, "--state", tmp_path / "state", "--make")
    assert found.exit_code == 0, found.output
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    order = lambda row: (row["device"], row["number"])  # noqa: E731
    assert sorted(rows, key=order) == sorted(expected(readings), key=order)
    assert len(rows) > 10

    again = outages("--input", readings, "--state", tmp_path / "state")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "had finished before" in again.stderr
