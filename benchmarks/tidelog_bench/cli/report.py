"""`tidelog bench report`: a page to read and to print, or a summary for the terminal."""

from pathlib import Path

import click

from tidelog.cli.output import Output, write_output
from tidelog.cli.store.options import EXIT_OK, on_this_machine
from tidelog_bench.cli.options import results_option
from tidelog_bench.report.chapter import Report, report
from tidelog_bench.report.document import document
from tidelog_bench.report.page.page import page
from tidelog_bench.report.terminal import summary
from tidelog_bench.session.records import LATEST, find


@click.command("report")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option(
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page.  [default: report.html, with --terminal or --json none]",
)
@click.option("--terminal", is_flag=True, help="Print the summary.")
@results_option
@on_this_machine
def command(
    output: Output, sessions: tuple[str, ...], target: Path | None, terminal: bool, results: Path
) -> int:
    """Write one HTML page of the newest session, or of the SESSIONs named.

    A session is a file, a name, the beginning of one, or latest, latest~1 and so on. Of several,
    each experiment takes its numbers from the newest that measured it. The page needs nothing
    else: it can be mailed, printed, and read on a phone. A session that was interrupted has a
    report too, which says what is missing.
    """
    found = report([find(reference, results) for reference in sessions or (LATEST,)])
    if target is None and not terminal and not output.as_json:
        target = Path("report.html")
    if target is not None:
        _write(output, target, found)
    if output.as_json:
        output.document(document(found))
        return EXIT_OK
    if terminal:
        for line in _lines(found):
            output.line(line)
    if target is not None:
        output.line(f"{target}: {target.stat().st_size / 1e6:.2f} MB")
    return EXIT_OK


def _lines(found: Report) -> list[str]:
    """Each experiment from the session that its chapter takes; the legend once."""
    lines: list[str] = []
    for loaded in found.sessions:
        session = loaded.session
        mine = [c.answer.experiment for c in found.chapters if c.session is session]
        if mine:
            lines += [f"session {session.session}, {session.pairs} pairs, seed {session.seed}", ""]
            lines += summary(loaded.records, mine)
    for chapter in found.chapters:
        lines += [f"{chapter.answer.experiment.name} is incomplete: {m}" for m in chapter.missing]
    return lines


def _write(output: Output, target: Path, found: Report) -> None:
    with output.progress("drawing") as progress:
        text = page(found.sessions, found.chapters, found.unknown, progress)
    write_output(target, text.encode())
