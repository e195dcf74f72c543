"""Made-up readings for the outages: the same ones every time.

Invariant: files sort by name as by the time of their last change, and every line is less than
`MAX_DELAY_MS` behind the newest one before it.
"""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.errors import ConfigError
from tidelog.examples.outages_function import MAX_DELAY_MS

DEVICES: Final = 24
LINES: Final = 2_400
FILES: Final = 6

_START_MS: Final = 1_767_225_600_000  # 2026-01-01 in UTC
_STEP_MS: Final = 250
_SILENT_ROUNDS: Final = 300
"""Lines, so 75 s, for which a device speaks or may be silent."""


def write_readings(directory: Path) -> None:
    """Fill a new directory with files of readings; raises ConfigError if it has files."""
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(
            f"--input {directory}",
            expected="a directory that is empty or does not exist, for made-up readings",
            found="files in it",
            action="leave --make out, or name another directory",
        )
    directory.mkdir(parents=True, exist_ok=True)
    made = list(readings())
    size = -(-len(made) // FILES)
    for number in range(FILES):
        # Spark reads nothing whose name begins with a dot: a file appears whole.
        unseen = directory / f".{number:03}"
        part = made[number * size : (number + 1) * size]
        unseen.write_bytes(msgspec.json.Encoder().encode_lines(part))
        os.utime(unseen, (_START_MS // 1000 + number, _START_MS // 1000 + number))
        unseen.replace(directory / f"readings-{number:03}.jsonl")


def readings() -> Iterator[dict[str, Any]]:
    """Devices speak in turns, a little out of order; some are silent for a while."""
    for number in range(LINES):
        device = _drawn(number) % DEVICES
        if _drawn(number // _SILENT_ROUNDS * DEVICES + device) % 5 == 0:
            continue
        delay = _drawn(number + LINES) % MAX_DELAY_MS
        yield {
            "device": f"device-{device:02}",
            "time_ms": _START_MS + MAX_DELAY_MS + number * _STEP_MS - delay,
            "value": _drawn(number + 2 * LINES) % 1000 / 10,
        }


def _drawn(number: int) -> int:
    return zlib.crc32(number.to_bytes(8, "big"))
