"""The sessions in a results directory: their names, and how a user refers to one.

Invariant: a session's name begins with the time it started, so names sort by age.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

from tidelog.bench.measurement import Size
from tidelog.bench.records import Record, SessionRecord, read
from tidelog.errors import ConfigError

DIRECTORY: Final = Path("benchmarks/results")
LATEST: Final = "latest"


def name(started: datetime, size: Size) -> str:
    """The name of a session that starts now."""
    return f"{started:%Y%m%dT%H%M%SZ}-{size}"


def paths(directory: Path) -> list[Path]:
    """The files of all sessions, oldest first."""
    return sorted(directory.glob("*.jsonl"))


def find(reference: str, directory: Path) -> Path:
    """The file of a session; raises ConfigError.

    A reference is a file, a name or its unambiguous beginning, or `latest`, or `latest~N` for the
    N-th before it.
    """
    if Path(reference).is_file():
        return Path(reference)
    known = paths(directory)
    stem, _, back = reference.partition("~")
    if stem == LATEST and (not back or back.isdecimal()):
        matching = known[-1 - int(back or 0) :][:1] if int(back or 0) < len(known) else []
    else:
        matching = [path for path in known if path.stem.startswith(reference)]
    if len(matching) == 1:
        return matching[0]
    found = f"{len(matching)} of {len(known)} sessions in {directory}"
    raise ConfigError(
        f"session {reference}",
        expected="a file, a name that `tidelog bench sessions` lists or its beginning, or latest~N",
        found=f"{found}: {', '.join(path.stem for path in matching)}" if matching else found,
        action="name one that exists, or give --results",
    )


def opened(path: Path) -> tuple[SessionRecord, list[Record]]:
    """A session's first record and all records; raises ConfigError."""
    records = list(read(path))
    first = records[0] if records else None
    if not isinstance(first, SessionRecord):
        raise ConfigError(
            f"results {path}",
            expected="a session's record on the first line",
            found="none" if first is None else type(first).__name__,
            action="is this the file of a session? see `tidelog bench sessions`",
        )
    return first, records
