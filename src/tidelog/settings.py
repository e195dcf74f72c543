"""The options of a job by name, and from a file, the environment and the command line to one
configuration.

Invariants: the command line wins over the environment, this over the file, and this over the
defaults, option by option; everything that was given is checked, also where another value wins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.errors import ConfigError
from tidelog.options.declaration import Declared, options_of
from tidelog.runtime.config import JobConfig

OPTIONS: Final[dict[str, Declared]] = {o.name: o for o in options_of(JobConfig)}
"""All options by name, in the order of the docs."""

SECTIONS: Final = tuple(
    dict.fromkeys(
        ".".join(o.path[:length]) for o in OPTIONS.values() for length in range(1, len(o.path))
    )
)
"""The parts of the configuration and theirs, such as `storage.s3`, which are tables in TOML."""

PREFIX: Final = "TIDELOG__"
"""Begins variables that set an option. One underscore begins those of a service called tidelog."""


def variable(declared: Declared) -> str:
    """The environment variable of an option, such as TIDELOG__UPLOAD__LINGER."""
    return PREFIX + "__".join(declared.path).upper()


def flag(declared: Declared) -> str:
    """The flag of an option, such as `--upload-linger`."""
    return "--" + "-".join(declared.path).replace("_", "-")


def nearest(name: str, names: list[str]) -> str:
    """What to do about a name that none of `names` is."""
    from difflib import get_close_matches  # noqa: PLC0415  # only for a mistake

    close = get_close_matches(name, names, n=1, cutoff=0.5)
    # A section may be missing or another one: the last part says most.
    last = name.rpartition(".")[2]
    for candidate in names:
        if not close and candidate.rpartition(".")[2] == last:
            close = [candidate]
    if close:
        return f"write {close[0]}, if that is meant"
    return "`tidelog config explain` lists all options"


class Setting(NamedTuple):
    """A value as somebody wrote it."""

    name: str
    """The full name of the option it is a value for."""
    raw: object
    origin: str
    """Where it was written, such as `environment variable TIDELOG__MEMORY`."""


class Effective(NamedTuple):
    """The value of an option, and where it comes from."""

    declared: Declared
    value: Any
    origin: str


DEFAULT = "default"


class Resolved(NamedTuple):
    """The effective value of every option, and everything that was wrong on the way."""

    effective: tuple[Effective, ...]
    problems: tuple[ConfigError, ...]

    def config(self) -> JobConfig:
        """The configuration; raises the first problem."""
        if self.problems:
            raise self.problems[0]
        return _built(self.effective)


def resolve(
    file: Path | None, environment: Mapping[str, str], flags: Iterable[Setting]
) -> Resolved:
    """The configuration that a file, an environment and flags make, without running anything."""
    problems: list[ConfigError] = []
    settings = [*_from_file(file, problems), *_from_environment(environment, problems), *flags]
    chosen: dict[str, Effective] = {}
    for name, declared in OPTIONS.items():
        chosen[name] = Effective(declared, declared.default, DEFAULT)
    for setting in settings:
        declared = OPTIONS[setting.name]
        try:
            value = declared.option.read(setting.raw)
        except ValueError as error:
            problems.append(
                ConfigError(
                    f"option {setting.name} ({setting.origin})",
                    expected=declared.option.expected,
                    found=str(error),
                    action=f"correct it; `tidelog config explain {setting.name}` explains it",
                )
            )
            continue
        chosen[setting.name] = Effective(declared, value, setting.origin)
    parallelism = chosen["parallelism"]
    if parallelism.origin == DEFAULT:
        subtasks = max(parallelism.value, chosen["workers"].value)
        chosen["parallelism"] = parallelism._replace(value=subtasks)
    effective = tuple(chosen.values())
    if not problems:
        try:
            _built(effective)
        except ConfigError as error:  # options that do not go together
            problems.append(error)
    return Resolved(effective, tuple(problems))


def load_config(
    file: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> JobConfig:
    """The configuration of a TOML file, as `tidelog run --config` reads it.

    `environment`, such as `os.environ`, wins over the file; `options` win over both: by name, with
    values as in the file, such as `{"upload.linger": "20 ms"}`. Raises ConfigError for an option
    that does not exist or a value that it does not take.
    """
    problems: list[ConfigError] = []
    settings: list[Setting] = []
    for name, raw in (options or {}).items():
        settings += _known(name, raw, "argument options", problems)
    if problems:
        raise problems[0]
    path = None if file is None else Path(file)
    return resolve(path, environment or {}, settings).config()


def _built(effective: Sequence[Effective]) -> JobConfig:
    values: dict[str, Any] = {}
    for option in effective:
        *sections, field = option.declared.path
        part = values
        for section in sections:
            part = part.setdefault(section, {})
        part[field] = option.value
    config: JobConfig = _part(JobConfig(), values)
    return config


def _part(default: Any, values: Mapping[str, Any]) -> Any:
    """A configuration of the type of `default`, or a part of one, with these values."""
    fields = {}
    for name, value in values.items():
        is_section = isinstance(value, dict)
        fields[name] = _part(getattr(default, name), value) if is_section else value
    return type(default)(**fields)


def _from_file(file: Path | None, problems: list[ConfigError]) -> Iterator[Setting]:
    if file is None:
        return
    import tomllib  # noqa: PLC0415  # most runs have no file

    try:
        # Some editors begin a file of UTF-8 with a byte order mark.
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        problems.append(
            ConfigError(
                f"configuration file {file}",
                expected="a file in TOML that can be read",
                found=getattr(cause, "strerror", None) or str(cause),
                action="correct the file, or its path",
            )
        )
        return
    yield from _from_table(document, "", str(file), problems)


def _from_table(
    table: Mapping[str, object], prefix: str, file: str, problems: list[ConfigError]
) -> Iterator[Setting]:
    for key, value in table.items():
        name = prefix + key
        if name in SECTIONS and isinstance(value, dict):
            yield from _from_table(value, f"{name}.", file, problems)
        elif name in SECTIONS:
            problems.append(
                ConfigError(
                    f"{name} in {file}",
                    expected=f"a table [{name}] with options",
                    found=repr(value),
                    action=f"`tidelog config explain {name}` lists its options",
                )
            )
        else:
            yield from _known(name, value, file, problems)


def _known(name: str, raw: object, origin: str, problems: list[ConfigError]) -> Iterator[Setting]:
    if name in OPTIONS:
        yield Setting(name, raw, origin)
    else:
        problems.append(_unknown(name, origin, [*OPTIONS, *SECTIONS]))


def _from_environment(
    environment: Mapping[str, str], problems: list[ConfigError]
) -> Iterator[Setting]:
    names = {variable(o): name for name, o in OPTIONS.items()}
    for key in sorted(environment):
        if key in names:
            yield Setting(names[key], environment[key], f"environment variable {key}")
        elif key.startswith(PREFIX):
            problems.append(_unknown(key, "environment", list(names)))


def _unknown(name: str, origin: str, names: list[str]) -> ConfigError:
    return ConfigError(
        f"option {name} ({origin})",
        expected="the name of an option",
        found="none of that name",
        action=nearest(name, names),
    )
