"""The combine factor: how many updates the write buffer makes one logged change of.

Invariants: updates and changes are those between the same two checkpoints of a run, so it does not
matter since when updates are counted; a file that is not the output of `tidelog run --json` is
refused, never half read.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tidelog.cost.measured.facts import Snapshot
from tidelog.cost.measured.missing import no_change, no_time, not_counted
from tidelog.cost.measured.report import Combine
from tidelog.errors import ConfigError


def combine_of(found: Sequence[Sequence[Snapshot]]) -> Combine:
    """The factor over all subtasks and runs, or why there is none."""
    pairs = [
        (run[0].points[who], last)
        for run in found
        if len(run) > 1
        for who, last in run[-1].points.items()
        if who in run[0].points
    ]
    changes = sum(last.seqno - first.seqno for first, last in pairs)
    updates = sum(last.updates - first.updates for first, last in pairs)
    if not changes:
        return Combine(None, no_change() if pairs else no_time())
    return Combine(updates / changes, None) if updates else Combine(None, not_counted())


class _State(msgspec.Struct, frozen=True):
    updates: int
    changes: int


class _Line(msgspec.Struct, frozen=True):
    event: str
    job: str
    state: _State


def read_combine(path: Path) -> Combine:
    """The combine factor in the last line of a file that `tidelog run --json` wrote; raises
    ConfigError.
    """
    line = _last_line(path)
    if not line.state.changes:
        return Combine(None, f"in {path} nothing has been changed yet", line.job)
    return Combine(line.state.updates / line.state.changes, None, line.job)


def _last_line(path: Path) -> _Line:
    try:
        data = path.read_bytes()
    except OSError as cause:
        raise _refused(path, cause.strerror or str(cause)) from cause
    # A job that is still running may be in the middle of its last line.
    whole = data[: data.rfind(b"\n") + 1] or data
    last: _Line | None = None
    for text in whole.splitlines():
        try:
            last = msgspec.json.decode(text, type=_Line)
        except msgspec.MsgspecError:
            continue  # A job without --output prints its records in between.
    if last is None:
        raise _refused(path, "no line with an event, a job and its state")
    return last


def _refused(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"--status {path}",
        expected="the output of `tidelog run --json`",
        found=found,
        action="write it with `tidelog run ... --json > FILE`, or leave the option out",
    )
