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
    ReadSpeed,
    Reporter,
    ending_line,
    figures,
    phase_line,
)
from tidelog.runtime.status.status import JobStatus


class LiveView(Reporter):
    """Redraws a panel on standard error."""

    poll_s = 0.5

    def __init__(self) -> None:
        console = Console(stderr=True)
        # Log records, and what a job prints to the same terminal, go above the panel; a pipe is
        # left alone.
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._live.start()

    def observe(self, status: JobStatus, speed: ReadSpeed) -> None:
        self._live.update(panel(status, speed), refresh=True)

    def stopping(self) -> None:
        self._live.console.show_cursor()  # the second signal ends the process as it is
        self._live.console.print(STOPPING, highlight=False)

    def notice(self, text: str) -> None:
        self._live.console.print(escape(text), highlight=False)

    def end(self, result: Ending) -> None:
        """Leave the last panel standing and say how it ended."""
        self._live.stop()
        style = "red" if result.error is not None else "green"
        self._live.console.print(
            escape(ending_line(result)), style=style, highlight=False, soft_wrap=True
        )


def panel(status: JobStatus, speed: ReadSpeed) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    if status.phase == "restoring" and status.restore is not None:
        grid.add_row("", ProgressBar(total=1.0, completed=status.restore.fraction, width=40))
    for name, text in figures(status, speed):
        grid.add_row(name, escape(text))
    return Panel(grid, title=escape(f"{status.job}: {phase_line(status)}"), title_align="left")
