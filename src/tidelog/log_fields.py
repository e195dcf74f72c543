"""The fields of a log record, as the message of an event shows them."""

from collections.abc import Mapping

from tidelog.credentials import masked


class LogFields(dict[str, object]):
    """The fields of a record, without secrets; `lines line` is a number and its noun: 2 lines."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__({name: _without_secret(value) for name, value in fields.items()})

    def __missing__(self, key: str) -> str:
        name, _, noun = key.partition(" ")
        return f"{self[name]:,} {noun}{'' if self[name] == 1 else 's'}"


def _without_secret(value: object) -> object:
    """A field as it is, or its text where that had a secret in it."""
    is_text = isinstance(value, str | BaseException)
    return text if is_text and (text := masked(str(value))) != str(value) else value
