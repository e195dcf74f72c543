"""The options of a job by name, and what each is called in the environment and in commands."""

from typing import Final

from tidelog.options.declaration import Declared, options_of
from tidelog.runtime.config import JobConfig

OPTIONS: Final[dict[str, Declared]] = {each.name: each for each in options_of(JobConfig)}
"""All options by name, in the order of the docs."""

SECTIONS: Final = tuple(dict.fromkeys(o.path[0] for o in OPTIONS.values() if len(o.path) > 1))
"""The parts of the configuration, which are tables in TOML."""

PREFIX: Final = "TIDELOG__"
"""What variables that set an option begin with; two underscores, so that none is taken for one
that another program sets for a service called tidelog."""


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
    close = close or [each for each in names if each.rpartition(".")[2] == last][:1]
    if close:
        return f"did you mean {close[0]}?"
    return "`tidelog config explain` lists all options"
