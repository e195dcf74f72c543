"""Reports of a running job: as JSON lines, as plain lines, or none.

Invariants: a reporter only formats what it is given; it never looks at the job itself, and within
`reports_never_wait` no report waits for who reads it.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, Final, Literal

import click
import msgspec

from tidelog.checkpoint.manifest import Savepoint
from tidelog.cli.logs import say
from tidelog.cli.output import printing
from tidelog.cli.values import seconds_text, size
from tidelog.errors import StorageError, TidelogError, error_fields
from tidelog.ids import Slot
from tidelog.options.units import plural
from tidelog.outlet import Outlet, outlet_of, settle
from tidelog.runtime.operators.progress import STANDSTILL_S
from tidelog.runtime.status.status import JobStatus

Outcome = Literal["finished", "already-complete", "stopped", "interrupted", "failed", "fenced"]


@contextmanager
def reports_never_wait(*, as_json: bool) -> Iterator[None]:
    """What goes to standard error, and reports as JSON, does not hold up the block when nobody
    reads it: then the oldest lines are left out.
    """
    names = ("stdout", "stderr") if as_json else ("stderr",)
    before = {name: getattr(sys, name) for name in names}
    for name, stream in before.items():
        setattr(sys, name, outlet_of(stream) or stream)
    try:
        yield
    finally:
        for name, stream in before.items():
            with suppress(OSError):
                settle(getattr(sys, name))
            setattr(sys, name, stream)


class Ending(msgspec.Struct, frozen=True):
    outcome: Outcome
    exit_code: int
    status: JobStatus
    restored_checkpoint: Slot | None
    seconds: float
    error: TidelogError | None = None
    chosen_checkpoint: bool = False
    """The user chose the checkpoint to restore; the next start is to take the newest."""
    savepoint: Savepoint | None = None
    """The one that the job was stopped with."""
    looked_at: Mapping[str, int] | None = None
    """Sources without anything new since the job's end, and their splits; None: not looked at."""


class ReadSpeed(msgspec.Struct, frozen=True):
    """Records the sources produced per second."""

    now: float = 0.0
    mean: float = 0.0


class Reporter:
    """Shows a person or a program how a job is doing; this one says nothing but errors."""

    poll_s = 1.0
    """How often it wants to look."""

    def observe(self, status: JobStatus, speed: ReadSpeed) -> None:
        """The job looks like this now."""

    def stopping(self) -> None:
        """A signal came; the end follows."""

    def notice(self, text: str) -> None:
        """Something that the user should know, and that ends nothing."""

    def end(self, result: Ending) -> None:
        """The job has ended; called once."""
        if result.error is not None:
            _to_stderr(f"Error: {result.error}", logging.ERROR)


class JsonReports(Reporter):
    """One JSON object per line on standard output; docs/reference/cli-json.md describes them."""

    def __init__(self, interval_s: float = 1.0) -> None:
        self.poll_s = interval_s

    def observe(self, status: JobStatus, speed: ReadSpeed) -> None:
        speeds = {"records_per_s": speed.now, "mean_records_per_s": speed.mean}
        _print_json({"event": "progress", **_plain(status), **speeds})

    def notice(self, text: str) -> None:
        _print_json({"event": "notice", "text": text})

    def end(self, result: Ending) -> None:
        status, savepoint = _plain(result.status), result.savepoint
        del status["phase"], status["restore"]
        _print_json(
            {
                "event": "result",
                "outcome": result.outcome,
                "exit_code": result.exit_code,
                "seconds": result.seconds,
                "restored_checkpoint": result.restored_checkpoint,
                "savepoint": savepoint
                and {
                    "name": savepoint.name,
                    "checkpoint": savepoint.slot,
                    "savepoint_format": savepoint.savepoint_format,
                    "drained": savepoint.final,
                },
                **status,
                "error": error_fields(result.error) if result.error is not None else None,
            },
            last=True,
        )


class PlainLines(Reporter):
    """Lines for a log file: at every turn of events, and every few seconds between."""

    poll_s = 0.25

    def __init__(
        self,
        interval_s: float = 5.0,
        write: Callable[[str, int], None] | None = None,
        *,
        verbose: bool = False,
    ) -> None:
        """`verbose` lines have all figures."""
        self._interval_s = interval_s
        self._figures = figures if verbose else main_figures
        self._write = write or _to_stderr
        self._last: JobStatus | None = None
        self._said_at = 0.0
        self._stopping = False

    def observe(self, status: JobStatus, speed: ReadSpeed) -> None:
        """A line when something happened or the interval has passed."""
        last, self._last = self._last, status
        if self._stopping:  # a phase that has begun just before is no news any more
            return
        if last is None or status.phase != last.phase:
            self._say(status, phase_line(status))
        if status.at_s - self._said_at >= self._interval_s:
            texts = (f"{name} {text}" for name, text in self._figures(status, speed))
            self._say(status, "; ".join(texts) or status.phase)

    def stopping(self) -> None:
        self._stopping = True
        self._write(STOPPING, logging.INFO)

    def notice(self, text: str) -> None:
        self._write(text, logging.WARNING)

    def end(self, result: Ending) -> None:
        level = logging.INFO if result.error is None else logging.ERROR
        self._write(ending_line(result), level)

    def _say(self, status: JobStatus, line: str) -> None:
        self._said_at = status.at_s
        self._write(f"{status.job}: {line}", logging.INFO)


STOPPING: Final = "stopping; the same signal again ends the process at once, which loses nothing"


def phase_line(status: JobStatus) -> str:
    """The phase a job has entered, and what its restore used or dropped."""
    restore, checkpoints = status.restore, status.checkpoints
    if status.phase == "restoring" and restore is not None:
        total = f"{size(restore.total_bytes)}, {plural(restore.total_changes, 'change')}"
        return f"restoring checkpoint {restore.checkpoint} ({total})"
    if status.phase == "finished":
        return "all input handled, final checkpoint completed"
    if status.phase != "running":
        return status.phase
    origin = "the start of its input" if restore is None else f"checkpoint {restore.checkpoint}"
    parts = [f"running from {origin} as generation {status.generation}"]
    if (copies := status.local_copies) is not None and restore is not None:
        damaged = f", {copies.damaged} damaged" if copies.damaged else ""
        used, fetched = size(copies.used_bytes), size(copies.fetched_bytes)
        parts.append(f"{used} from local copies, {fetched} fetched{damaged}")
    if checkpoints.dropped_buffers:
        buffers = plural(checkpoints.dropped_buffers, "buffer")
        parts.append(f"{buffers} of records in flight DROPPED, as allowed")
    if checkpoints.aligned_edges:
        parts.append(f"barriers never overtake on {', '.join(checkpoints.aligned_edges)}")
    parts += (f"DROPPED, as allowed: {dropped}" for dropped in status.dropped_state)
    return "; ".join(parts)


def main_figures(status: JobStatus, speed: ReadSpeed) -> Iterator[tuple[str, str]]:
    """What everybody wants to know of a running or restoring job, and what is wrong."""
    yield from _restored(status)
    if not status.operators or status.phase == "restoring":
        return
    yield "records", f"{status.records_read:,}, {speed.now:,.0f}/s"
    yield "state", size(status.state.table_bytes)
    checkpoints = status.checkpoints
    failed = f", {checkpoints.failed} failed" if checkpoints.failed else ""
    if checkpoints.completed or failed:
        yield "last checkpoint", f"{seconds_text(checkpoints.last_duration_s)}{failed}"
    yield from _troubles(status)


def figures(status: JobStatus, speed: ReadSpeed) -> Iterator[tuple[str, str]]:
    """All figures of a running or restoring job: names and texts."""
    state, checkpoints = status.state, status.checkpoints
    yield from _restored(status)
    if not status.operators or status.phase == "restoring":
        return
    rates = f"{speed.now:,.0f}/s now, {speed.mean:,.0f}/s on average"
    yield "records", f"{status.records_read:,}, {rates}"
    yield "state", size(state.table_bytes)
    factor = state.combine_factor
    combined = "" if factor is None else f", {factor:.1f} updates per change"
    log = f"{size(state.log_bytes)} log ({plural(state.log_changes, 'change')}){combined}"
    yield "durable", f"{size(state.materialized_bytes)} materialized, {log}"
    yield (
        "checkpoints",
        f"{checkpoints.completed} completed, {checkpoints.failed} failed, "
        f"last {seconds_text(checkpoints.last_duration_s)}, "
        f"p50 {seconds_text(checkpoints.p50_s)}, p99 {seconds_text(checkpoints.p99_s)}",
    )
    yield "latency", _latency(status)
    tables, uploads = status.materializations, status.uploads
    uploaded = f"{size(tables.uploaded_bytes)} uploaded"
    yield "materializations", f"{tables.completed} completed, {tables.failed} failed, {uploaded}"
    latency = uploads.latency_s
    p99 = "" if latency is None else f"p99 {seconds_text(latency.p99)}, "
    yield (
        "log upload",
        f"{size(uploads.bytes)} in {plural(uploads.requests, 'request')}, "
        f"{uploads.failures} failed, {p99}queue {size(uploads.queued_bytes)}, "
        f"back-pressure {seconds_text(uploads.backpressured_s)}",
    )
    memory = status.memory
    yield "memory", f"{size(memory.used_bytes)} of {size(memory.budget_bytes)}"
    if workers := status.workers:
        records, used = [w.records_in for w in workers], [w.memory_bytes for w in workers]
        yield (
            "workers",
            f"{len(workers)}, each with {min(records):,} to {max(records):,} records, "
            f"{size(min(used))} to {size(max(used))}",
        )
    yield from _troubles(status)


def _restored(status: JobStatus) -> Iterator[tuple[str, str]]:
    """How far the restore of a job is, also of one that handles records before its end."""
    restore, tables = status.restore, status.restore.hydration if status.restore else None
    if restore is not None and status.phase == "restoring":
        remaining = "" if restore.eta_s is None else f", {seconds_text(restore.eta_s)} left"
        yield "restored", f"{restore.fraction:.0%} of checkpoint {restore.checkpoint}{remaining}"
        yield "read", f"{size(restore.bytes)} of {size(restore.total_bytes)}"
        yield "replayed", f"{restore.changes:,} of {plural(restore.total_changes, 'change')}"
    elif tables is not None and tables.seconds is None:
        remaining = "" if tables.eta_s is None else f", whole in about {seconds_text(tables.eta_s)}"
        here = f"{tables.fraction:.0%} of {size(tables.total_bytes)} here"
        waits = f"; operators wait for {plural(tables.stalled, 'table')}" if tables.stalled else ""
        blocks = f"{plural(tables.blocks, 'block')} fetched on demand"
        yield "serving", f"{here}, {blocks}{remaining}{waits}"


def _troubles(status: JobStatus) -> Iterator[tuple[str, str]]:
    """What a user should look at."""
    checkpoints, tables = status.checkpoints, status.materializations
    if status.late_records:
        yield "late", f"{plural(status.late_records, 'record')} dropped or sent to a side output"
    for operator in status.operators:
        if operator.keys_apart is not None:
            yield "no key matches", f"in {operator.id}: {operator.keys_apart}"
    for name, text in (
        ("last failure", checkpoints.last_failure),
        ("last failure of a materialization", tables.last_failure),
        ("stays aligned", checkpoints.kept_aligned),
    ):
        if text is not None:
            yield name, text


def _latency(status: JobStatus) -> str:
    """How long records take to the end of the slowest path, and the longest standstill."""
    standstill = f"longest standstill {seconds_text(status.longest_standstill_s)}"
    latency = status.record_latency_s
    if latency is None:
        return standstill
    p50, p99, longest = map(seconds_text, (latency.median, latency.p99, latency.max))
    return f"p50 {p50}, p99 {p99}, max {longest}, {standstill}"


def _late(status: JobStatus) -> str:
    return f", {plural(status.late_records, 'record')} late" if status.late_records else ""


def _stood_still(status: JobStatus) -> str:
    longest_s = status.longest_standstill_s
    return f", longest standstill {seconds_text(longest_s)}" if longest_s >= STANDSTILL_S else ""


def ending_line(result: Ending) -> str:
    """How the run ended, and what to do next."""
    status, checkpoints = result.status, result.status.checkpoints
    match result.outcome:
        case "finished":
            return (
                f"{status.job}: finished; {plural(status.records_read, 'record')} in "
                f"{result.seconds:.1f} s, {plural(checkpoints.completed, 'checkpoint')}, "
                f"the last is number {checkpoints.last_checkpoint}"
                f"{_late(status)}{_stood_still(status)}"
            )
        case "already-complete" if result.looked_at is not None:
            looked_at = [f"{name} ({plural(n, 'split')})" for name, n in result.looked_at.items()]
            return (
                f"{status.job}: nothing new since checkpoint {result.restored_checkpoint}; looked "
                f"at {', '.join(looked_at)}; the same command continues when there is more"
            )
        case "already-complete":
            return (
                f"{status.job}: already complete (checkpoint {result.restored_checkpoint}), "
                "nothing to do: with --finish-once, or where a part of it ends alone, a job is "
                "complete for good; for another run give it another --store and --output"
            )
        case "stopped":
            savepoint = result.savepoint
            assert savepoint is not None
            then = (
                "its data counts as ended; another run needs another --store and --output"
                if savepoint.final and not savepoint.before_end
                else "run the same command to go on from there"
            )
            return (
                f"{status.job}: stopped with savepoint {savepoint.name}, checkpoint "
                f"{savepoint.slot}{_late(status)}; {then}"
            )
        case "interrupted":
            last = checkpoints.last_checkpoint
            origin = (
                "the start, no checkpoint completed"
                if last is None
                else f"checkpoint {last} or newer"
            )
            command = "the same command" + (
                " without --restore-checkpoint or --from" if result.chosen_checkpoint else ""
            )
            late = _late(status)
            return f"{status.job}: stopped{late}; run {command} to resume from {origin}"
        case "failed" | "fenced":
            return f"Error: {result.error}"


def _plain(status: JobStatus) -> dict[str, Any]:
    plain = asdict(status)
    del plain["at_s"]
    return {**plain, "late_records": status.late_records}


def _print_json(fields: dict[str, Any], *, last: bool = False) -> None:
    try:
        with printing():
            line = msgspec.json.encode(fields) + b"\n"
            if isinstance(sys.stdout, Outlet):
                sys.stdout.write(line)  # click would try it out, and lose an earlier error
            else:
                click.echo(line, nl=False)
            if last:
                settle(sys.stdout)
    except BrokenPipeError as error:
        raise StorageError(
            "standard output",
            expected="a reader of the reports until the job ends",
            found="that it has gone",
            action="start the job again: it resumes from its last checkpoint",
        ) from error


def _to_stderr(line: str, level: int) -> None:
    # Standard output belongs to a job that prints its results.
    try:
        say(line, level)
    except BrokenPipeError:
        raise
    except OSError:
        pass  # a full disk takes no line, as it takes no log record: the job goes on
