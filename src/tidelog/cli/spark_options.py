"""What the commands of `tidelog spark` have in common: how they are called, where checkpoints are.

Invariants: those of `tidelog.cli.options`; a checkpoint's URL is taken as Spark writes it.
"""

import functools
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click

from tidelog.cli.options import StoreCommand, reporting
from tidelog.cli.output import Output
from tidelog.effects import Effects
from tidelog.spark.location import store_url
from tidelog.storage.open import open_store

P = ParamSpec("P")

STOP_THE_QUERY: Final = (
    "The query that writes this checkpoint must be stopped: whether it is cannot be seen from here."
)

spark_home_option = click.option(
    "--spark-home",
    type=click.Path(file_okay=False, path_type=Path),
    help="The Spark to use; by default $SPARK_HOME, else the installed pyspark.",
)


def on_checkpoint(
    function: Callable[Concatenate[StoreCommand, P], Awaitable[int]],
) -> Callable[..., None]:
    """Make a command function of `function`, which works on the checkpoint at a URL and returns
    the exit code; adds URL, --endpoint, --json and --debug.
    """

    @click.argument("url")
    @click.option("--endpoint", metavar="URL", help="S3 endpoint, when it is not that of AWS.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON; see docs/cli-json.md.")
    @click.option("--debug", is_flag=True, help="Print tracebacks.")
    @functools.wraps(function)
    def command(url: str, endpoint: str | None, as_json: bool, debug: bool, **options: Any) -> None:
        output = Output(as_json=as_json)

        async def work() -> int:
            return await with_checkpoint(
                url,
                endpoint,
                output,
                lambda invocation: function(invocation, **options),  # type: ignore[call-arg]
            )

        click.get_current_context().exit(reporting(work, output, debug=debug))

    return command


async def with_checkpoint(
    url: str,
    endpoint: str | None,
    output: Output,
    function: Callable[[StoreCommand], Awaitable[int]],
) -> int:
    """Run `function` on the opened checkpoint and close it again."""
    effects = Effects()
    with closing(effects.offload):
        options = {} if endpoint is None else {"endpoint_url": endpoint}
        store = open_store(store_url(url), effects, options=options)
        try:
            return await function(StoreCommand(url, endpoint, effects, store, output))
        finally:
            await store.close()
