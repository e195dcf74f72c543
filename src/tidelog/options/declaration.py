"""How an option of a job is declared: once, at the field that holds it.

A field of a configuration is made by `option(default, kind, help, when=...)`. From that follow the
checks of the object, the option's texts in files, environment and command line, and its docs.
"""

from collections.abc import Iterator
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.errors import ConfigError, require
from tidelog.options.kinds import Integer, Kind, Number

T = TypeVar("T")

_KEY: Final = "option"


class Option(NamedTuple):
    """The declaration of one option."""

    kind: Kind
    help: str
    """What it does."""
    when: str
    """When to change it."""
    none: str | None = None
    """The word for None, where that is a value."""
    aliases: tuple[str, ...] = ()
    """Further flags of the command line."""

    @property
    def expected(self) -> str:
        return self.kind.expected + (f", or {self.none}" if self.none else "")

    def read(self, raw: object) -> Any:
        """As `Kind.read`; raises ValueError also for a value out of the kind's range."""
        if self.none is not None and raw == self.none:
            return None
        value = self.kind.read(raw)
        if not self.kind.holds(value):
            raise ValueError(str(raw) if raw != "" else "an empty text")
        return value

    def show(self, value: Any) -> str:
        return self.none or "none" if value is None else self.kind.show(value)

    def toml(self, value: Any) -> str:
        if isinstance(value, bool):
            return self.show(value)
        if isinstance(value, tuple):
            return f"[{', '.join(map(_quoted, value))}]"
        bare = isinstance(self.kind, Integer | Number) and value is not None
        return self.show(value) if bare else _quoted(self.show(value))

    def check(self, name: str, value: Any) -> None:
        """Raises ConfigError unless a value of Python is one that the option takes."""
        if not (self.kind.holds(value) if value is not None else self.none is not None):
            raise ConfigError(
                f"option {name}",
                expected=self.expected if self.none is None else f"{self.kind.expected}, or None",
                found=repr(value),
                action=f"pass {self.kind.in_python}" if self.kind.in_python else "correct it",
            )


def _quoted(text: str) -> str:
    # JSON's strings are TOML's basic strings.
    import msgspec  # noqa: PLC0415  # as in `kinds`: it takes long to import

    return msgspec.json.encode(text).decode()


def option(
    default: T,
    kind: Kind,
    help: str,
    *,
    when: str,
    none: str | None = None,
    aliases: tuple[str, ...] = (),
) -> T:
    """A field of a configuration, with its default and its declaration."""
    metadata = {_KEY: Option(kind, help, when, none, aliases)}
    declared_field: T = field(default=default, metadata=metadata)
    return declared_field


class Declared(NamedTuple):
    """An option at its place in a configuration."""

    path: tuple[str, ...]
    option: Option
    default: Any

    @property
    def name(self) -> str:
        """The name in Python, in files and in messages, such as `upload.linger`."""
        return ".".join(self.path)

    @property
    def default_text(self) -> str:
        return self.option.show(self.default) or "none"

    def of(self, config: Any) -> Any:
        for part in self.path:
            config = getattr(config, part)
        return config


def options_of(config: type) -> tuple[Declared, ...]:
    """The options of a configuration and of its parts, in the order they are declared."""
    return tuple(_declared(config, ()))


def _declared(config: type, path: tuple[str, ...]) -> Iterator[Declared]:
    for option_field in fields(config):
        field_path = (*path, option_field.name)
        if _KEY in option_field.metadata:
            yield Declared(field_path, option_field.metadata[_KEY], option_field.default)
        elif option_field.default_factory is not MISSING and is_dataclass(
            option_field.default_factory
        ):
            yield from _declared(option_field.default_factory, field_path)


def check_options(config: Any, prefix: str = "") -> None:
    """Raises ConfigError for a value that its option does not take; `prefix` precedes its name."""
    for option_field in fields(config):
        kind, part = option_field.default_factory, getattr(config, option_field.name)
        if isinstance(kind, type):
            expected = f"a {kind.__name__}, which holds its options"
            require(
                f"option {prefix}{option_field.name}", repr(part), isinstance(part, kind), expected
            )
    for declared in options_of(type(config)):
        declared.option.check(prefix + declared.name, declared.of(config))
