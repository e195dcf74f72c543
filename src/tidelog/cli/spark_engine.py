"""What commands that start a Spark of their own have in common: where it runs, its settings.

Invariant: the command gets `conf` as a dict; a setting without a name or `=` is wrong usage.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def on_spark(command: F) -> F:
    """Options --master and --conf, in that order."""
    command = click.option(
        "--conf", multiple=True, callback=_settings, metavar="NAME=VALUE", help="A Spark setting."
    )(command)
    return click.option("--master", metavar="URL", help="Spark's master; by default local[*].")(
        command
    )


def _settings(context: object, parameter: object, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if not all(key and equals for key, equals, _ in pairs):
        raise click.BadParameter("write it as NAME=VALUE")
    return {key: value for key, _, value in pairs}
