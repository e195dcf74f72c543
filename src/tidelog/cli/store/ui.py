"""`tidelog ui`: a page in the browser on what a job does and what its store holds."""

import asyncio
import os
import sys
import webbrowser
from collections.abc import Mapping

import click
import msgspec

from tidelog.cli.options import option
from tidelog.cli.spark.options import on_store_or_checkpoint
from tidelog.cli.store.options import StoreCommand
from tidelog.ui.page import page, policy
from tidelog.ui.query import watcher_of
from tidelog.ui.server import PageServer, page_server


@click.command("ui")
@on_store_or_checkpoint
@option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Port on 127.0.0.1; 0: a free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
async def command(invocation: StoreCommand, port: int, no_browser: bool) -> int:
    """Show the job and the store at URL on a page, until Ctrl-C.

    Live while the job runs on this machine, from the store alone when it does not. Nothing is
    written, and only this machine can open the page. `tidelog report` makes the same as a file.
    URL may be the checkpoint of a Spark query, which is shown as it is stored.
    """
    effects, loop = invocation.effects, asyncio.get_running_loop()
    watcher = await watcher_of(invocation.store, effects.clock)
    await watcher.look_at_job()
    # A store that cannot be read is an error here, and a notice on the page later.
    await watcher.document()

    def document(on_demand: bool) -> bytes:
        made = asyncio.run_coroutine_threadsafe(watcher.document(on_demand=on_demand), loop)
        return msgspec.json.encode(made.result())

    with page_server(port, page().encode(), policy(), document) as server:
        serving = asyncio.ensure_future(effects.offload.wait(server.serve_forever))
        try:
            wanted = not no_browser and sys.stdout.isatty()
            await _show(invocation, server, browser=wanted and has_screen(sys.platform, os.environ))
            await watcher.follow()
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
