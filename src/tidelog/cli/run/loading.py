"""From the name of a job on the command line to the job."""

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any, Final

from tidelog.errors import ConfigError
from tidelog.runtime.arguments import JobArguments
from tidelog.runtime.graph import Job
from tidelog.runtime.user_code import blame

EXAMPLES: Final = ("wordcount", "sessions", "outages")


def load_job(name: str, arguments: JobArguments) -> Job:
    """The job behind an example's name or `module:attribute`.

    The attribute is a Job, or a function that returns one and may take the arguments. Raises
    ConfigError when it is neither, UserFunctionError when importing or building it fails.
    """
    path = f"tidelog.examples.{name}:job" if name in EXAMPLES else name
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ConfigError(
            f"job {name!r}",
            expected=f"{', '.join(EXAMPLES)} or module:attribute",
            action="name one of these",
        )
    found = _imported(path, module_name, attribute)
    if not isinstance(found, Job) and callable(found):
        with blame(path):
            found = found(arguments) if inspect.signature(found).parameters else found()
    if not isinstance(found, Job):
        raise ConfigError(
            f"job {path!r}",
            expected="a Job, or a function that returns one",
            found=type(found).__name__,
            action="correct the name or the function",
        )
    return found


class _importing(blame):
    """Names the module whose import failed."""

    __slots__ = ()
    expected = "to be imported"
    action = "fix the import and start again"


def _imported(path: str, module_name: str, attribute: str) -> Any:
    # As `python -m` does: an installed script alone would not find modules beside the user.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with _importing(f"module {module_name}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # an import within the module
            raise _nowhere(path, f"no module {error.name!r}") from error
        if not hasattr(module, attribute):
            raise _nowhere(path, f"no {attribute!r} in it")
        return getattr(module, attribute)


def _nowhere(path: str, found: str) -> ConfigError:
    return ConfigError(
        f"job {path}",
        expected="a module here or on PYTHONPATH, with this attribute",
        found=found,
        action="correct the name, or run from the directory that holds the module",
    )
