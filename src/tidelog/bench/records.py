"""Records: one JSON line each, with all that is needed to judge a run or to repeat it.

Invariants: a file belongs to one session and is only ever appended to; a line that was written
whole is never lost; a trial is recorded when it has ended, so an interrupted session can go on.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tidelog.bench.measurement import Points, Setting
from tidelog.errors import ConfigError

FORMAT = 1


class SessionRecord(msgspec.Struct, tag="session", tag_field="kind", frozen=True):
    """The first line, and one more each time the session is resumed."""

    session: str
    started: str
    size: str
    pairs: int
    seed: int
    names: list[str]
    """The experiments asked for."""
    machine: dict[str, Any]
    versions: dict[str, str]
    revision: str | None
    """Of git, where the library lies in a checkout."""
    source: str
    """Digest of the library's modules as imported, so that local edits show."""
    only: list[str] = []
    """Restrictions of cells, KEY=VALUE."""
    format: int = FORMAT


class TrialRecord(msgspec.Struct, tag="trial", tag_field="kind", frozen=True):
    """One run of one variant."""

    measurement: str
    settings: dict[str, Setting]
    variant: str
    pair: int
    """Counts from 0; ratios are formed within one pair only."""
    position: int
    """Of the variant within its pair; the order is reversed every other pair."""
    seed: int
    started: str
    wall_s: float
    load: float
    """Load average of the machine when the trial began."""
    figures: dict[str, float]
    stolen: float = 0.0
    """Share of the machine's processor time that its host gave to others meanwhile."""
    series: dict[str, Points] = {}
    notes: dict[str, Any] = {}


class SkipRecord(msgspec.Struct, tag="skipped", tag_field="kind", frozen=True):
    """A variant that could not run here."""

    measurement: str
    variant: str
    reason: str


class FailureRecord(msgspec.Struct, tag="failed", tag_field="kind", frozen=True):
    """A trial that raised; it is tried again when the session is resumed."""

    measurement: str
    settings: dict[str, Setting]
    variant: str
    pair: int
    error: str


class ResultRecord(msgspec.Struct, tag="result", tag_field="kind", frozen=True):
    """What the pairs of one cell say together, for readers that want no arithmetic."""

    measurement: str
    settings: dict[str, Setting]
    figures: dict[str, dict[str, dict[str, float]]]
    """Variant, then figure, then median, min, max and n."""
    ratios: dict[str, dict[str, dict[str, Any]]]
    """`over / under`, then figure, then median, min, max, n and `pairs`, the ratio of each."""


Record = SessionRecord | TrialRecord | SkipRecord | FailureRecord | ResultRecord
_DECODER = msgspec.json.Decoder(Record)


def append(path: Path, record: Record) -> None:
    """Append one line; what an interruption left of a line goes, for it is no record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as lines:
        lines.truncate(_whole(path))
        lines.write(msgspec.json.encode(record, order="deterministic") + b"\n")


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    with path.open("rb") as lines:
        size = lines.seek(0, os.SEEK_END)
        lines.seek(max(0, size - 1))
        if lines.read(1) in (b"\n", b""):
            return size
        lines.seek(0)
        return lines.read().rfind(b"\n") + 1


def read(path: Path) -> Iterator[Record]:
    """All records of a session's file, in order; raises ConfigError.

    A last line without its end, as an interruption leaves it, is no record.
    """
    try:
        data = path.read_bytes()
    except OSError as cause:
        raise ConfigError(
            f"results {path}",
            expected="the file of a session, as `tidelog bench run` writes it",
            found=cause.strerror or str(cause),
            action="see `tidelog bench sessions` for those there are",
        ) from cause
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            yield _DECODER.decode(line)
        except (msgspec.ValidationError, msgspec.DecodeError) as cause:
            raise ConfigError(
                f"results {path}, line {number}",
                expected=f"a record of format {FORMAT}",
                found=str(cause),
                action="was the file edited? take the line out or use another session",
            ) from cause


def trials(records: Iterable[Record]) -> list[TrialRecord]:
    """The trials that count: of two of one pair and variant, as a resumed session has, the last."""
    found: dict[tuple[str, str, str, int], TrialRecord] = {}
    for record in records:
        if isinstance(record, TrialRecord):
            cell = json.dumps(record.settings, sort_keys=True)
            found[record.measurement, cell, record.variant, record.pair] = record
    return list(found.values())
