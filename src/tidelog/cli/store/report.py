"""`tidelog report`: the page of `tidelog ui` as one file."""

from pathlib import Path

import click

from tidelog.cli.output import write_output
from tidelog.cli.spark.options import on_store_or_checkpoint
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand
from tidelog.ui.page import page
from tidelog.ui.query import watcher_of
from tidelog.ui.watch import JOB_S


@click.command("report")
@on_store_or_checkpoint
@click.option(
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    default=Path("report.html"),
    show_default=True,
    help="The page; a file that is there is replaced.",
)
async def command(invocation: StoreCommand, target: Path) -> int:
    """Write what `tidelog ui` shows of the store at URL, and of its job, as one HTML file.

    URL may be the checkpoint of a Spark query, too.

    The file needs nothing else: it can be mailed, printed, and read on a phone. It names
    operators, states and the store, and holds no keys and no values. Exits with 1 when something
    is wrong with the store; the page says what.
    """
    watcher = await watcher_of(invocation.store, invocation.effects.clock)
    await watcher.look_at_job()
    document = await watcher.document()
    if document.live is not None:
        # Rates are what became of one look until the next.
        await invocation.effects.clock.sleep(JOB_S)
        await watcher.look_at_job()
        document = await watcher.document()
    data = page(document).encode()
    write_output(target, data)
    output, problems = invocation.output, len(document.problems)
    if output.as_json:
        fields = {"output": str(target), "bytes": len(data), "problems": problems}
        output.document({"url": document.url, **fields})
    else:
        for problem in document.problems:
            output.line(f"{problem.where}: expected {problem.expected}; found {problem.found}")
            output.line(f"  next: {problem.action}")
        output.line(f"{target}: {len(data) / 1e6:.2f} MB")
    return EXIT_PROBLEM if problems else EXIT_OK
