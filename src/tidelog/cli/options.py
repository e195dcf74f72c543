"""Options that several commands have, and how an option is declared.

Invariant: nothing is imported that only a command which runs needs.
"""

import functools
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, Final, TypeVar

import click

from tidelog.options.kinds import NOT_ENCRYPTED, KeyPlace

F = TypeVar("F", bound=Callable[..., Any])

ENDPOINT: Final[Any] = {"metavar": "URL", "help": "S3 endpoint, when it is not that of AWS."}
endpoint_option = click.option("--endpoint", **ENDPOINT)
LOG_STORE: Final[Any] = {
    "metavar": "URL",
    "help": "Put the log of a new store here, for example into a bucket that answers faster.",
}
log_store_option = click.option("--log-store", **LOG_STORE)


def _settings(context: object, parameter: object, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise click.BadParameter("write it as NAME=VALUE")
        settings[key.strip()] = value.strip()
    return settings


CONF: Final[Any] = {
    "multiple": True,
    "callback": _settings,
    "metavar": "NAME=VALUE",
    "help": "A setting of Spark; may be repeated.",
}
"""What --conf is; its value is a dict."""


def key_place(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Where a key is found, from an option's text; raises BadParameter."""
    if text is None:
        return None
    try:
        return KeyPlace().read(text)
    except ValueError as error:
        raise click.BadParameter(f"expected {KeyPlace().expected}; found {error}") from error


def _key_or_none(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> str | None:
    # As the job's option, of which the variable is.
    return None if text == NOT_ENCRYPTED else key_place(context, parameter, text)


encryption_key_option = click.option(
    "--encryption-key",
    metavar="KEY",
    envvar="TIDELOG__ENCRYPTION_KEY",  # that of the job's option, without importing it
    show_envvar=True,
    callback=_key_or_none,
    help="Where the key of an encrypted store is: a file, env:NAME or aws-kms:KEY.",
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


def declared(*names: str, **settings: Any) -> Any:
    """A field of a dataclass that is an option, named as the field is."""
    return field(metadata={"option": (names, settings)})


def options_of(name: str, kind: type[Any]) -> Callable[[F], F]:
    """Add options that a dataclass declares to a command, which gets them as argument `name`."""
    declarations = [declared for declared in fields(kind) if "option" in declared.metadata]

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def command(*args: Any, **options: Any) -> Any:
            values = {
                declaration.name: options.pop(f"{name}_{declaration.name}")
                for declaration in declarations
            }
            return function(*args, **{name: kind(**values)}, **options)

        result: Any = command
        for declaration in reversed(declarations):
            names, settings = declaration.metadata["option"]
            result = option(*names, f"{name}_{declaration.name}", **settings)(result)
        return result  # type: ignore[no-any-return]  # what click makes of it

    return decorated
