"""`tidelog ui` and `report`: a page on what a job does and what its store holds."""

import asyncio
import os
import sys
import webbrowser
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click
import msgspec

from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.options import option
from tidelog.cli.output import write_output
from tidelog.cli.store.options import StoreCommand, on_store
from tidelog.errors import StoreUnreachableError
from tidelog.spark.checkpoint.checkpoint import store_url
from tidelog.ui.following import PATIENCE_S, Follower
from tidelog.ui.page import page, policy
from tidelog.ui.server import PageServer, page_server
from tidelog.ui.watch import JOB_S

on_store_or_checkpoint = partial(on_store, location=store_url)
"""As `on_store`, for a store or the checkpoint of a query, whose URL is as Spark writes it."""


@click.command("ui")
@on_store_or_checkpoint
@option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="Port on 127.0.0.1; 0: a free one."
)
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
async def ui_command(invocation: StoreCommand, port: int, no_browser: bool) -> int:
    """Show the job and the store at URL on a page, until Ctrl-C.

    Live while the job runs on this machine, from the store alone when it does not. Nothing is
    written, and only this machine can open the page. `tidelog report` makes the same as a file.
    URL may be the checkpoint of a Spark query, which is shown as it is stored.
    """
    effects, loop = invocation.effects, asyncio.get_running_loop()
    follower = Follower(invocation.store, effects.clock)
    await follower.look_at_job()
    await follower.document(patience_s=PATIENCE_S)
    # What a store refuses is an error here, and a notice on the page later; one that does not
    # answer is waited for there.
    if follower.failure is not None and not isinstance(follower.failure, StoreUnreachableError):
        raise follower.failure

    def document(on_demand: bool) -> bytes:
        looking = follower.document(on_demand=on_demand, patience_s=PATIENCE_S)
        future = asyncio.run_coroutine_threadsafe(looking, loop)
        return msgspec.json.encode(future.result())

    with page_server(port, page().encode(), policy(), document) as server:
        serving = asyncio.ensure_future(effects.offload.wait(server.serve_forever))
        try:
            browser = not no_browser and sys.stdout.isatty()
            await _show(
                invocation, server, browser=browser and has_screen(sys.platform, os.environ)
            )
            await follower.follow()
        finally:
            await effects.offload.run(server.shutdown)
            await serving
    raise AssertionError("it follows the job until it is cancelled")


def has_screen(platform: str, environment: Mapping[str, str]) -> bool:
    """Whether a browser would open in a window, and not take the terminal for itself."""
    windows = ("DISPLAY", "WAYLAND_DISPLAY")
    return platform in ("darwin", "win32") or any(map(environment.get, windows))


async def _show(invocation: StoreCommand, server: PageServer, *, browser: bool) -> None:
    """Say where the page is, and open it."""
    output = invocation.output
    if output.as_json:
        output.json_line({"url": invocation.store.url, "page": server.url})
    else:
        output.line(f"{server.url} shows {invocation.store.url}; Ctrl-C ends it")
    if browser:
        await invocation.effects.offload.run(webbrowser.open, server.url)


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
async def report_command(invocation: StoreCommand, target: Path) -> int:
    """Write what `tidelog ui` shows of the store at URL, and of its job, as one HTML file.

    URL may be the checkpoint of a Spark query, too.

    The file needs nothing else: it can be mailed, printed, and read on a phone. It names
    operators, states and the store, and holds no keys and no values. Exits with 1 when something
    is wrong with the store, or it does not answer; the page says what.
    """
    follower = Follower(invocation.store, invocation.effects.clock)
    await follower.look_at_job()
    document = await follower.document()
    if document.live is not None:
        # Rates are what became of one look until the next.
        await invocation.effects.clock.sleep(JOB_S)
        await follower.look_at_job()
        document = await follower.document(patience_s=PATIENCE_S)
    elif follower.failure is not None:
        raise follower.failure
    data = page(document).encode()
    write_output(target, data)
    problems = len(document.problems)
    fields = {"output": str(target), "bytes": len(data), "problems": problems}
    lines = [
        f"{problem.where}: expected {problem.expected}; found {problem.found}\n"
        f"  next: {problem.action}"
        for problem in document.problems
    ]
    invocation.output.show(
        {"url": document.url, **fields}, *lines, f"{target}: {len(data) / 1e6:.2f} MB"
    )
    return EXIT_PROBLEM if problems else EXIT_OK
