"""From the name of a job on the command line to the job."""

import inspect
from typing import Final

from tidelog.errors import ConfigError
from tidelog.runtime.arguments import JobArguments
from tidelog.runtime.graph import Job
from tidelog.runtime.user_code import blame, imported

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
    found = imported(f"job {path}", module_name, attribute)
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
