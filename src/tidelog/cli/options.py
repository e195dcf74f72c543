"""Options that several commands have, and how an option is declared.

Invariant: nothing is imported that only a command which runs needs.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidelog.options.kinds import KeyPlace

F = TypeVar("F", bound=Callable[..., Any])

endpoint_option = click.option(
    "--endpoint", metavar="URL", help="S3 endpoint, when it is not that of AWS."
)


def key_place(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Where a key is found, from an option's text; raises BadParameter."""
    if text is None:
        return None
    try:
        return KeyPlace().read(text)
    except ValueError as error:
        raise click.BadParameter(f"expected {KeyPlace().expected}; found {error}") from error


encryption_key_option = click.option(
    "--encryption-key",
    metavar="KEY",
    envvar="TIDELOG__ENCRYPTION_KEY",  # that of the job's option, without importing it
    show_envvar=True,
    callback=key_place,
    help="Where the key of an encrypted store is: a file, env:NAME or aws-kms:KEY.",
)
log_store_option = click.option(
    "--log-store",
    metavar="URL",
    help="Put the log of a new store here, for example into a bucket that answers faster.",
)


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """An option; `--help` shows the default that it is given."""
    return click.option(*names, show_default="default" in settings, **settings)


def add_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Decorate a command with options, which `--help` prints in this order."""

    def decorated(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated
