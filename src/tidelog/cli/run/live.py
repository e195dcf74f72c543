"""A running job on a terminal: one panel that is redrawn in place."""

import sys

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from tidelog.cli.run.reports import (
    STOPPING,
    Ending,
    Speed,
    ending_line,
    phase_line,
    restore_text,
)
from tidelog.cli.values import seconds_text, size
from tidelog.runtime.status.status import JobStatus
from tidelog.runtime.status.storage import StateStatus, UploadsStatus


class LiveView:
    """Redraws a panel on standard error."""

    poll_s = 0.5

    def __init__(self) -> None:
        console = Console(stderr=True)
        # A job that prints to the same terminal goes above the panel; a pipe is left alone.
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=False,
        )
        self._live.start()

    def observe(self, status: JobStatus, speed: Speed) -> None:
        """Redraw."""
        self._live.update(panel(status, speed), refresh=True)

    def stopping(self) -> None:
        """How to hurry."""
        self._live.console.print(STOPPING, highlight=False)

    def notice(self, text: str) -> None:
        """A line above the panel."""
        self._live.console.print(escape(text), highlight=False)

    def end(self, ending: Ending) -> None:
        """Leave the last panel standing and say how it ended."""
        self._live.stop()
        style = "red" if ending.error is not None else "green"
        self._live.console.print(
            escape(ending_line(ending)), style=style, highlight=False, soft_wrap=True
        )


def panel(status: JobStatus, speed: Speed) -> Panel:
    """The figures of a job."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    restore = status.restore
    if status.phase == "restoring" and restore is not None:
        grid.add_row("restore", ProgressBar(total=1.0, completed=restore.fraction, width=40))
        grid.add_row("", restore_text(status))
        grid.add_row("", f"{size(restore.bytes)} of {size(restore.total_bytes)}")
        grid.add_row("", f"{restore.changes:,} of {restore.total_changes:,} changes")
    elif status.operators:
        for name, text in figures(status, speed):
            grid.add_row(name, escape(text))
    return Panel(grid, title=f"{escape(status.job)}: {phase_line(status)}", title_align="left")


def figures(status: JobStatus, speed: Speed) -> list[tuple[str, str]]:
    """Names and values of the panel's rows."""
    state, checkpoints, uploads = status.state, status.checkpoints, status.uploads
    tables = status.materializations
    rows = [
        (
            "records",
            f"{status.records_read:,}, {speed.now:,.0f}/s now, {speed.mean:,.0f}/s on average",
        ),
        ("state", size(state.table_bytes)),
        (
            "durable",
            f"{size(state.materialized_bytes)} materialized, "
            f"{size(state.log_bytes)} log ({state.log_changes:,} changes){_combined(state)}",
        ),
        (
            "checkpoints",
            f"{checkpoints.completed} completed, {checkpoints.failed} failed, "
            f"last {seconds_text(checkpoints.last_duration_s)}, "
            f"p50 {seconds_text(checkpoints.p50_s)}, p99 {seconds_text(checkpoints.p99_s)}",
        ),
        (
            "materializations",
            f"{tables.completed} completed, {tables.failed} failed, "
            f"{size(tables.uploaded_bytes)} uploaded",
        ),
        (
            "log upload",
            f"{size(uploads.bytes)} in {uploads.requests} requests, "
            f"{uploads.failures} failed, {_latency(uploads)}queue {size(uploads.queued_bytes)}, "
            f"back-pressure {seconds_text(uploads.backpressured_s)}",
        ),
    ]
    memory = status.memory
    rows.append(("memory", f"{size(memory.used_bytes)} of {size(memory.budget_bytes)}"))
    if status.late_records:
        rows.append(("late", f"{status.late_records:,} records dropped or sent to a side output"))
    failures = [
        ("last failure", checkpoints.last_failure),
        ("", tables.last_failure),
        ("stays aligned", checkpoints.kept_aligned),
    ]
    return rows + [(name, text) for name, text in failures if text is not None]


def _combined(state: StateStatus) -> str:
    factor = state.combine_factor
    return "" if factor is None else f", {factor:.1f} updates per change"


def _latency(uploads: UploadsStatus) -> str:
    latency = uploads.latency_s
    return "" if latency is None else f"p99 {seconds_text(latency.p99)}, "
