"""Finds the job that a command names, in a module, a file or the examples, and builds it."""

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_type_hints

import msgspec

from tidelog.errors import ConfigError, require
from tidelog.runtime.config import JobArguments
from tidelog.runtime.graph import Job
from tidelog.runtime.user_code import job_definition

EXAMPLES: Final = ("wordcount", "sessions", "outages")


def load_job(name: str, arguments: JobArguments) -> Job:
    """The job of an example's name, `module:attribute` or `file.py:attribute`.

    The attribute is a Job, or a function that returns one and may take the arguments: as
    JobArguments, or as the dataclass that its parameter is annotated with. Raises ConfigError when
    it is neither, fails, or does not take arguments that were given.
    """
    path = f"tidelog.examples.{name}:job" if name in EXAMPLES else name
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ConfigError(
            f"job {name!r}",
            expected=f"{', '.join(EXAMPLES)}, module:attribute or file.py:attribute",
            found="no attribute" if module_name else "no module",
            action=f"name the function as well, as in {module_name or 'file.py'}:job",
        )
    job, takes = _imported(path, module_name, attribute), False
    if not isinstance(job, Job) and callable(job):
        with job_definition(path, may_exit=True):
            takes = bool(inspect.signature(job).parameters)
            job = job(_arguments_for(job, arguments)) if takes else job()
    if not isinstance(job, Job):
        raise ConfigError(
            f"job {path!r}",
            expected="a Job, or a function that returns one",
            found="nothing: its function has no `return`" if job is None else repr(job),
            action="correct the name or the function",
        )
    passed = _given(arguments)
    if passed and not takes:
        raise ConfigError(
            ", ".join(f"--{name}" if name != "own" else " ".join(arguments.own) for name in passed),
            expected="a job that reads them: a function that takes a JobArguments",
            found=f"{path}, which takes none",
            action="leave them out, or take a JobArguments in the job's function",
        )
    return job


def _given(arguments: JobArguments) -> dict[str, Any]:
    """The arguments that differ from their defaults, by name."""
    values = {}
    for field in fields(arguments):
        if (value := getattr(arguments, field.name)) != field.default:
            values[field.name] = value
    return values


def _arguments_for(function: Callable[..., Any], arguments: JobArguments) -> Any:
    """What a job's function is called with: its own dataclass, if it names one."""
    parameter = next(iter(inspect.signature(function).parameters))
    kind = get_type_hints(function).get(parameter)
    if not isinstance(kind, type) or not is_dataclass(kind) or kind is JobArguments:
        return arguments
    import argparse  # noqa: PLC0415  # few jobs have arguments of their own

    values = _given(arguments)
    own = values.pop("own", ())
    of_command = {field.name for field in fields(arguments)}
    parser = argparse.ArgumentParser("tidelog run JOB ... --", description=inspect.getdoc(kind))
    for field in fields(kind):
        if field.name not in of_command:
            parser.add_argument(f"--{field.name.replace('_', '-')}", **_settings(field))
    values |= vars(parser.parse_args(own))
    names = [field.name for field in fields(kind)]
    for name in values:
        require(f"option --{name}", "none", name in names, f"a field {name!r} of {kind.__name__}")
    for field in fields(kind):
        is_there = field.name in values or _is_optional(field)
        require(f"option --{field.name}", "none", is_there, "a value, which the job needs")
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"arguments of the job, {kind.__name__}",
            expected="values of the types of its fields",
            found=str(error),
            action="correct them; `-- --help` at the end of the command lists them",
        ) from error


def _is_optional(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _settings(field: Field[Any]) -> dict[str, Any]:
    """The option of a field: its value is a text, which the field's type is made of later."""
    from argparse import SUPPRESS, BooleanOptionalAction  # noqa: PLC0415  # as above

    settings: dict[str, Any] = {"default": SUPPRESS, "required": not _is_optional(field)}
    if field.default is not MISSING:
        settings["help"] = f"default: {field.default}"
    if field.type in (bool, "bool"):
        settings["action"] = BooleanOptionalAction
    elif str(field.type).removeprefix("<class '").startswith(("list", "tuple", "set")):
        settings["nargs"] = "+"
    return settings


def _imported(path: str, module_name: str, attribute: str) -> Any:
    file = Path(module_name)
    of_file = file.suffix == ".py"
    name = file.stem if of_file else module_name
    with job_definition(f"module {name}"):
        try:
            module = _of_file(path, name, file) if of_file else _of_name(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # an import within the module
            raise _nowhere(path, f"no module {error.name!r}") from error
        if not hasattr(module, attribute):
            raise _nowhere(path, _only(module))
        return getattr(module, attribute)


def _of_name(name: str) -> ModuleType:
    # As `python -m` does: an installed script alone would not find the user's modules.
    with suppress(FileNotFoundError):  # where the command runs was removed
        _search(Path.cwd())
    return importlib.import_module(name)


def _of_file(path: str, name: str, file: Path) -> ModuleType:
    """The module that a file is, as `python FILE` finds it; state finds its classes by `name`."""
    if not file.is_file():
        raise _nowhere(path, f"no module {name!r}")
    if name in sys.modules:
        other = getattr(sys.modules[name], "__file__", None)
        if other is None or Path(other).resolve() != file.resolve():
            raise ConfigError(
                f"job {path}",
                expected="a file with a name that no other module has",
                found=f"module {name!r}, which is imported already from {other or 'Python'}",
                action="rename the file",
            )
        return sys.modules[name]
    _search(file.resolve().parent)
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, "it has the suffix of Python"
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _only(module: ModuleType) -> str:
    """The names of a module that could be jobs: what it defines itself."""
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, Job) or getattr(value, "__module__", None) == module.__name__
    ]
    jobs = [name for name in names if not name.startswith("_")]
    return f"only {', '.join(jobs)} in it" if jobs else "neither a job nor a function in it"


def _search(directory: Path) -> None:
    """Find modules there from now on, before any other place."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _nowhere(path: str, found: str) -> ConfigError:
    return ConfigError(
        f"job {path}",
        expected="a file, or a module here or on PYTHONPATH, with this attribute",
        found=found,
        action="correct the name, or run from the directory that holds the module",
    )
