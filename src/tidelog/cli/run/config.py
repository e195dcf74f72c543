"""`tidelog config`: the options of a job, without running it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import click

from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.output import Output, Rows
from tidelog.cli.run.options import config_options
from tidelog.cli.store.options import on_this_machine
from tidelog.errors import ConfigError, error_fields
from tidelog.options.declaration import Declared
from tidelog.options.units import plural
from tidelog.runtime.config import JobConfig
from tidelog.settings import DEFAULT, OPTIONS, SECTIONS, Resolved, flag, nearest, resolve, variable


@click.group("config")
def command() -> None:
    """Show, check and explain the options of a job; nothing is run.

    The same options, under the same names, are fields of JobConfig in Python, keys of a TOML file
    (`tidelog run JOB --config FILE`), environment variables and options of `run`. The command line
    wins over the environment, this over the file, and this over the defaults.
    """


@command.command("show")
@config_options
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@on_this_machine
def show(output: Output, /, config: Callable[[], Resolved], changed: bool) -> int:
    """Show the settings that `tidelog run` would have with these options, and where each is from.

    Takes --config and the job's options as `tidelog run` does, and reads the same environment.
    """
    resolved = config()
    resolved.config()  # raises for what is wrong
    rows = [setting for setting in resolved.effective if not changed or setting.origin != DEFAULT]
    document = [
        {
            "name": setting.declared.name,
            "value": _plain(setting.value),
            "text": setting.declared.option.show(setting.value),
            "default": _plain(setting.declared.default),
            "origin": setting.origin,
        }
        for setting in rows
    ]
    option = ("option", lambda setting: setting.declared.name)
    value = ("value", lambda setting: setting.declared.option.show(setting.value))
    output.show(document, Rows(rows, option, value, ("from", lambda setting: setting.origin)))
    return EXIT_OK


@command.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@on_this_machine
def check(output: Output, /, file: Path) -> int:
    """Check the configuration FILE and list everything that is wrong; exit code 1 if anything is.

    Neither the environment nor a store is looked at.
    """
    resolved = resolve(file, {}, ())
    changed = sum(setting.origin != DEFAULT for setting in resolved.effective)
    problems = [error_fields(problem) for problem in resolved.problems]
    lines = list(map(str, resolved.problems)) or [
        f"{file}: {plural(changed, 'option')}, nothing wrong"
    ]
    output.show({"file": str(file), "options": changed, "problems": problems}, *lines)
    return EXIT_PROBLEM if resolved.problems else EXIT_OK


# A flag may be the name.
@command.command("explain", context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@on_this_machine
def explain(output: Output, /, name: str | None) -> int:
    """Explain an option: what it does, its default, range, and when to change it.

    NAME is an option's name, flag or environment variable, or a section such as `upload`. Without
    it all options are listed.
    """
    if name is not None and (declared := _named(name)) is not None:
        output.show(_fields(declared), *_described(declared))
        return EXIT_OK
    options = [o for o in OPTIONS.values() if name is None or o.name.startswith(f"{name}.")]
    if not options:
        raise ConfigError(
            f"option {name}",
            expected="the name of an option, its flag or variable, or of a section",
            found="none of that name",
            action=nearest(str(name), [*OPTIONS, *SECTIONS]),
        )
    columns = (
        ("option", lambda declared: declared.name),
        ("default", lambda declared: declared.default_text),
        ("what it does", lambda declared: declared.option.help),
    )
    output.show(list(map(_fields, options)), Rows(options, *columns))
    return EXIT_OK


def _named(name: str) -> Declared | None:
    bare = f"--{name.removeprefix('--').removeprefix('no-')}"
    for declared in OPTIONS.values():
        if name in (declared.name, variable(declared), flag(declared), *declared.option.aliases):
            return declared
        if name.startswith("--no-") and bare == flag(declared):
            return declared
    return None


def _fields(declared: Declared) -> dict[str, Any]:
    option = declared.option
    return {
        "name": declared.name,
        "help": option.help,
        "when": option.when,
        "default": _plain(declared.default),
        "text": option.show(declared.default),
        "expected": option.expected,
        "variable": variable(declared),
        "flags": [flag(declared), *option.aliases],
    }


def _described(declared: Declared) -> Iterator[str]:
    option = declared.option
    yield f"{declared.name}: {option.help}"
    yield ""
    for title, text in (
        ("default", declared.default_text),
        ("expected", option.expected),
        ("change it", option.when),
        ("TOML", f"{declared.name} = {option.toml(declared.default)}"),
        ("environment", f"{variable(declared)}={quote(option.show(declared.default))}"),
        ("command line", ", ".join((flag(declared), *option.aliases))),
        ("Python", _python(declared)),
    ):
        yield f"  {title + ':':<14}{text}"


def _python(declared: Declared) -> str:
    *sections, key = declared.path
    parts = [JobConfig()]
    for section in sections:
        parts.append(getattr(parts[-1], section))
    text = f"{key}={declared.default!r}"
    for part, section in reversed(list(zip(parts[1:], sections, strict=True))):
        text = f"{section}={type(part).__name__}({text})"
    return f"JobConfig({text})"


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | tuple) else str(value)
