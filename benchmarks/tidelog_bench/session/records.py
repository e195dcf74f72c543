"""Sessions and their records: one JSON line each, with all that is needed to repeat or judge a run.

Invariants: a file belongs to one session and is only ever appended to; a line that was written
whole is never lost; a trial is recorded when it has ended, so an interrupted session can go on. A
session's name begins with the time it started, so names sort by age.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.errors import ConfigError, usable_path
from tidelog.options.units import plural
from tidelog_bench.experiment import Setting, settings_key
from tidelog_bench.experiments import RENAMED

FORMAT: Final = 1


def pairs_needed(settings: Mapping[str, Setting], pairs: int) -> int:
    """Of a cell that says `counted` one: it counts requests, which the machine's other work does
    not change. Of another so many as asked for.
    """
    return 1 if settings.get("counted") else pairs


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
    """The git revision, where the library lies in a checkout."""
    source: str
    """A digest of all `sources`; of earlier versions, of all modules."""
    sources: dict[str, str] = {}
    """By experiment, a digest of the code that it runs; earlier versions recorded none."""
    only: list[str] = []
    """Restrictions of cells, KEY=VALUE."""
    limit_s: float | None = None
    """What the session may take; None: as long as it needs."""
    job: dict[str, Setting] = {}
    """Settings of the job of the user's own that it measures, in place of experiments."""
    format: int = FORMAT


class OfExperiment(msgspec.Struct, tag_field="kind", frozen=True, kw_only=True):
    """A record of an experiment, under the name that it has now."""

    experiment: str = msgspec.field(name="measurement")

    def __post_init__(self) -> None:
        now = RENAMED.get(self.experiment, self.experiment)
        msgspec.structs.force_setattr(self, "experiment", now)


class OfPair(OfExperiment, frozen=True, kw_only=True):
    settings: dict[str, Setting]
    pair: int
    """Counts from 0; ratios are formed within one pair only."""

    @property
    def cell(self) -> str:
        """Equal for equal cells."""
        return settings_key(self.settings)


class TrialRecord(OfPair, tag="trial", frozen=True, kw_only=True):
    """One run of one variant."""

    variant: str
    position: int
    """The variant's position within its pair; the order is reversed every other pair."""
    seed: int
    started: str
    wall_s: float
    load: float
    """Load average of the machine when the trial began."""
    figures: dict[str, float]
    stolen: float = 0.0
    """Share of the machine's processor time that its host gave to others meanwhile."""
    notes: dict[str, Any] = {}


class SkipRecord(OfExperiment, tag="skipped", frozen=True, kw_only=True):
    """A variant that could not run here."""

    variant: str
    reason: str


class FailureRecord(OfPair, tag="failed", frozen=True, kw_only=True):
    """A trial that raised; it is tried again when the session is resumed."""

    variant: str
    error: str


class CutRecord(OfPair, tag="cut", frozen=True, kw_only=True):
    """A pair that a session with a limit had no time for; it is run when the session is resumed."""

    reason: str


class _Summary(msgspec.Struct, tag="result", tag_field="kind", frozen=True):
    """Medians that earlier versions wrote into their sessions."""


Record = SessionRecord | TrialRecord | SkipRecord | FailureRecord | CutRecord
_DECODER = msgspec.json.Decoder(Record | _Summary)


def append(path: Path, record: Record) -> None:
    """Append one line; what an interruption left of a line goes, for it is no record.

    Raises ConfigError where nothing can be written.
    """
    with usable_path(
        f"results {path}",
        expected="a file that can be written, on a disk with room",
        action="choose another directory with --results",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as lines:
            lines.truncate(path.read_bytes().rfind(b"\n") + 1)
            lines.write(msgspec.json.encode(record, order="deterministic") + b"\n")


def read(path: Path) -> Iterator[Record]:
    """All records of a session's file, in order; raises ConfigError.

    A last line without its end, as an interruption leaves it, is no record.
    """
    with usable_path(
        f"results {path}",
        expected="the file of a session, as `tidelog bench run` writes it",
        action="see `tidelog bench sessions` for those there are",
    ):
        data = path.read_bytes()
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            record = _DECODER.decode(line)
        except (msgspec.ValidationError, msgspec.DecodeError) as cause:
            raise ConfigError(
                f"results {path}, line {number}",
                expected=f"a record of format {FORMAT}",
                found=str(cause),
                action="was the file edited? take the line out or use another session",
            ) from cause
        if not isinstance(record, _Summary):
            yield record


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


def trials(records: Iterable[Record], experiment: str | None = None) -> list[TrialRecord]:
    """The trials, or those of one experiment, that count: of two of one pair and variant, as a
    resumed session has, the last.
    """
    found: dict[tuple[str, str, str, int], TrialRecord] = {}
    for record in records:
        if isinstance(record, TrialRecord) and experiment in (None, record.experiment):
            found[record.experiment, record.cell, record.variant, record.pair] = record
    return list(found.values())


DIRECTORY: Final = Path("benchmarks/results")
LATEST: Final = "latest"


def free(directory: Path, name: str) -> str:
    """The name, with a number after it when a session of the same second has it."""
    # An underscore sorts after the dot of the ending, so files stay in order of time.
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(each for each in names if not (directory / f"{each}.jsonl").exists())


def paths(directory: Path) -> list[Path]:
    """The files of all sessions, oldest first."""
    return sorted(directory.glob("*.jsonl"))


def find(reference: str, directory: Path) -> Path:
    """The file of a session; raises ConfigError.

    A reference is a file, here or in the directory, a whole name or its unambiguous beginning, or
    `latest`, or `latest~N` for the N-th before it.
    """
    for file in (Path(reference), directory / reference):
        if file.is_file():
            return file
    known = paths(directory)
    stem, _, back = reference.partition("~")
    if stem == LATEST and (not back or back.isdecimal()):
        matching = known[::-1][int(back or 0) :][:1]
    else:
        # A whole name may begin another one: the second session of a second has it with a number.
        matching = [path for path in known if path.stem == reference] or [
            path for path in known if path.stem.startswith(reference)
        ]
    if len(matching) == 1:
        return matching[0]
    found = f"{len(matching)} of {plural(len(known), 'session')} in {directory}"
    raise ConfigError(
        f"session {reference}",
        expected="a file, a name that `tidelog bench sessions` lists or its beginning, or latest~N",
        found=f"{found}: {', '.join(path.stem for path in matching)}" if matching else found,
        action="name one that exists, or give --results",
    )
