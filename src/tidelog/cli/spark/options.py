"""What the commands of `tidelog spark` have in common: options, and how checkpoints are opened.

Invariants: those of `tidelog.cli.store.options`; a checkpoint's URL is taken as Spark writes it.
"""

from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from tidelog.cli.store.options import on_store
from tidelog.spark.checkpoint.location import store_url

spark_home_option = click.option(
    "--spark-home",
    type=click.Path(file_okay=False, path_type=Path),
    help="The Spark to use; by default $SPARK_HOME, else the installed pyspark.",
)


on_checkpoint = partial(on_store, location=store_url, encrypted=False)
"""As `on_store`, for the checkpoint at a URL."""
on_store_or_checkpoint = partial(on_store, location=store_url)
"""As `on_store`, for either."""


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
