"""Reports of a running job: as JSON lines, as plain lines, or none.

Invariant: a reporter only formats what it is given; it never looks at the job itself.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, Literal, Protocol

import click
import msgspec

from tidelog.checkpoint.manifest import Savepoint
from tidelog.cli.output import error_fields
from tidelog.cli.values import seconds_text, size
from tidelog.errors import TidelogError
from tidelog.ids import Slot
from tidelog.runtime.status.status import JobStatus

Outcome = Literal["finished", "already-complete", "stopped", "interrupted", "failed", "fenced"]


class Ending(msgspec.Struct, frozen=True):
    """How a run ended."""

    outcome: Outcome
    exit_code: int
    status: JobStatus
    restored_slot: Slot | None
    seconds: float
    error: TidelogError | None = None
    chosen_slot: bool = False
    """The user chose the slot to restore; the next start is to take the newest."""
    savepoint: Savepoint | None = None
    """The one that the job was stopped with."""


class Speed(msgspec.Struct, frozen=True):
    """Records the sources produced per second."""

    now: float = 0.0
    mean: float = 0.0


class Reporter(Protocol):
    """Shows a person or a program how a job is doing."""

    poll_s: float
    """How often it wants to look."""

    def observe(self, status: JobStatus, speed: Speed) -> None:
        """The job looks like this now."""
        ...

    def stopping(self) -> None:
        """A signal came; the end follows."""
        ...

    def notice(self, text: str) -> None:
        """Something that the user should know, and that ends nothing."""
        ...

    def end(self, ending: Ending) -> None:
        """The job is over; called once."""
        ...


class Quiet:
    """Says nothing but errors."""

    poll_s = 1.0

    def observe(self, status: JobStatus, speed: Speed) -> None:
        """A status is not shown."""

    def stopping(self) -> None:
        """The start of a stop is not shown."""

    def notice(self, text: str) -> None:
        """A notice is not shown."""

    def end(self, ending: Ending) -> None:
        """The error, if there was one."""
        if ending.error is not None:
            _to_stderr(f"Error: {ending.error}")


class JsonLines:
    """One JSON object per line on standard output; docs/reference/cli-json.md describes them."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self.poll_s = interval_s

    def observe(self, status: JobStatus, speed: Speed) -> None:
        """A line with event "progress"."""
        _print_json({"event": "progress", **_plain(status, speed)})

    def stopping(self) -> None:
        """Nothing; the result says it."""

    def notice(self, text: str) -> None:
        """A line with event "notice"."""
        _print_json({"event": "notice", "text": text})

    def end(self, ending: Ending) -> None:
        """The last line, with event "result"."""
        status = _plain(ending.status, Speed())
        for gone in ("phase", "restore", "records_per_s", "mean_records_per_s"):
            del status[gone]
        _print_json(
            {
                "event": "result",
                "outcome": ending.outcome,
                "exit_code": ending.exit_code,
                "seconds": ending.seconds,
                "restored_slot": ending.restored_slot,
                "savepoint": _savepoint_fields(ending.savepoint),
                **status,
                "error": error_fields(ending.error) if ending.error is not None else None,
            }
        )


class PlainLines:
    """Lines for a log file: at every turn of events, and every few seconds between."""

    poll_s = 0.25

    def __init__(self, interval_s: float = 5.0, write: Callable[[str], None] | None = None) -> None:
        self._interval_s = interval_s
        self._write = write or _to_stderr
        self._last: JobStatus | None = None
        self._said_at = 0.0

    def observe(self, status: JobStatus, speed: Speed) -> None:
        """A line when something happened or the interval is over."""
        last, self._last = self._last, status
        if last is None or status.phase != last.phase:
            self._say(status, phase_line(status))
        if status.at_s - self._said_at >= self._interval_s:
            self._say(status, progress_line(status, speed))

    def stopping(self) -> None:
        """How to hurry."""
        self._write(STOPPING)

    def notice(self, text: str) -> None:
        """A line."""
        self._write(text)

    def end(self, ending: Ending) -> None:
        """What happened and what to do next."""
        self._write(ending_line(ending))

    def _say(self, status: JobStatus, line: str) -> None:
        self._said_at = status.at_s
        self._write(f"{status.job}: {line}")


STOPPING: Final = "stopping; the same signal again ends the process at once, which loses nothing"


def phase_line(status: JobStatus) -> str:
    """The phase a job has entered."""
    restore = status.restore
    match status.phase:
        case "restoring" if restore is not None:
            total = f"{size(restore.total_bytes)}, {restore.total_changes:,} changes"
            return f"restoring slot {restore.slot} ({total})"
        case "running":
            origin = f"slot {restore.slot}" if restore is not None else "the start of its input"
            extra = copies_text(status) + barriers_text(status) + dropped_text(status)
            return f"running from {origin} as generation {status.generation}{extra}"
        case "finished":
            return "all input handled, final checkpoint completed"
        case phase:
            return phase


def barriers_text(status: JobStatus) -> str:
    """Dropped buffers, and edges whose barriers stay aligned; empty without any."""
    checkpoints = status.checkpoints
    text = ""
    if checkpoints.dropped_buffers:
        text += f"; {checkpoints.dropped_buffers} buffers of records in flight DROPPED, as told"
    if checkpoints.aligned_edges:
        text += f"; barriers never overtake on {', '.join(checkpoints.aligned_edges)}"
    return text


def dropped_text(status: JobStatus) -> str:
    """The state of the checkpoint that was dropped; empty when none was."""
    return "".join(f"; DROPPED, as told: {dropped}" for dropped in status.dropped_state)


def copies_text(status: JobStatus) -> str:
    """How much of a restore came from local copies and from the store; empty without copies."""
    copies = status.local_copies
    if copies is None or status.restore is None:
        return ""
    text = f"; {size(copies.used_bytes)} from local copies, {size(copies.fetched_bytes)} fetched"
    return text if not copies.damaged else f"{text}, {copies.damaged} damaged"


def progress_line(status: JobStatus, speed: Speed) -> str:
    """A running or restoring job in one line."""
    if status.phase == "restoring" and status.restore is not None:
        return f"restoring, {restore_text(status)}"
    checkpoints, uploads = status.checkpoints, status.uploads
    return (
        f"{status.records_read:,} records, {speed.now:,.0f}/s (mean {speed.mean:,.0f}/s), "
        f"state {size(status.state.table_bytes)}, "
        f"log {size(status.state.log_bytes)}, "
        f"{checkpoints.completed} checkpoints (last {seconds_text(checkpoints.last_duration_s)}, "
        f"p99 {seconds_text(checkpoints.p99_s)}, {checkpoints.failed} failed), "
        f"{status.materializations.completed} materializations, "
        f"upload queue {size(uploads.queued_bytes)}{late_text(status)}"
    )


def late_text(status: JobStatus) -> str:
    """How many records came too late; empty when none did."""
    return f", {status.late_records:,} records late" if status.late_records else ""


def restore_text(status: JobStatus) -> str:
    """How far a restore is."""
    restore = status.restore
    assert restore is not None
    left = "" if restore.eta_s is None else f", {seconds_text(restore.eta_s)} left"
    return f"{restore.fraction:.0%} of slot {restore.slot}{left}"


def ending_line(ending: Ending) -> str:
    """How the run ended, and what to do next."""
    status, checkpoints = ending.status, ending.status.checkpoints
    match ending.outcome:
        case "finished":
            return (
                f"{status.job}: finished; {status.records_read:,} records in "
                f"{ending.seconds:.1f} s, {checkpoints.completed} checkpoints, "
                f"the last in slot {checkpoints.last_slot}{late_text(status)}"
            )
        case "already-complete":
            return (
                f"{status.job}: already complete (slot {ending.restored_slot}), nothing to do; "
                "for another run give it another --store and --output"
            )
        case "stopped":
            savepoint = ending.savepoint
            assert savepoint is not None
            then = (
                "its data counts as ended; another run needs another --store and --output"
                if savepoint.final
                else "run the same command to go on from there"
            )
            return (
                f"{status.job}: stopped with savepoint {savepoint.name} in slot "
                f"{savepoint.slot}{late_text(status)}; {then}"
            )
        case "interrupted":
            slot = checkpoints.last_slot
            origin = (
                "the start, no checkpoint completed" if slot is None else f"slot {slot} or newer"
            )
            command = "the same command" + (
                " without --restore-slot or --from" if ending.chosen_slot else ""
            )
            late = late_text(status)
            return f"{status.job}: stopped{late}; run {command} to resume from {origin}"
        case "failed" | "fenced":
            return f"Error: {ending.error}"


def _plain(status: JobStatus, speed: Speed) -> dict[str, Any]:
    plain = asdict(status)
    del plain["at_s"]
    plain["late_records"] = status.late_records
    plain["records_per_s"] = speed.now
    plain["mean_records_per_s"] = speed.mean
    return plain


def _savepoint_fields(savepoint: Savepoint | None) -> dict[str, Any] | None:
    if savepoint is None:
        return None
    return {
        "name": savepoint.name,
        "slot": savepoint.slot,
        "savepoint_format": savepoint.savepoint_format,
        "drained": savepoint.final,
    }


def _print_json(fields: dict[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
    sys.stdout.flush()


def _to_stderr(line: str) -> None:
    # Standard output belongs to a job that prints its results.
    click.echo(line, err=True)
