"""What the commands of `tidelog spark` have in common: options, and how checkpoints are opened.

Invariants: those of `tidelog.cli.store.options`; a checkpoint's URL is taken as Spark writes it.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click

from tidelog.cli.store.options import StoreCommand, on_store
from tidelog.spark.checkpoint.location import store_url

P = ParamSpec("P")

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
    return on_store(function, store_url, encrypted=False)


def on_store_or_checkpoint(
    function: Callable[Concatenate[StoreCommand, P], Awaitable[int]],
) -> Callable[..., None]:
    """Like `on_checkpoint`, for the store of a job as well; adds --encryption-key for it."""
    return on_store(function, store_url)


def _settings(context: object, parameter: object, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if not all(key.strip() and equals for key, equals, _ in pairs):
        raise click.BadParameter("write it as NAME=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}


CONF: Final[dict[str, Any]] = {
    "multiple": True,
    "callback": _settings,
    "metavar": "NAME=VALUE",
    "help": "A setting of Spark; may be repeated.",
}
"""What --conf is; its value is a dict."""
