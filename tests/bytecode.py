"""Compiled modules are kept between processes, also where Python was told to keep none.

A run starts hundreds of processes. Where `PYTHONDONTWRITEBYTECODE` is set, as in many container
images, each of them compiles the library and what it imports anew: half of what it takes.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.made_once import by_one_process

DIRECTORY = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
"""Not beside the sources: whoever set the variable wants nothing there."""


def keep_bytecode(config: pytest.Config) -> None:
    """From now on, in this process and in those that it starts; nothing where it is so anyway."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(DIRECTORY))
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"]
        sys.dont_write_bytecode = False
        config.add_cleanup(_forget_temporary_files)


@contextmanager
def compiled_once(config: pytest.Config) -> Iterator[None]:
    """Around a worker's collection, which compiles all tests and what they import: in the first run
    one worker does it alone, and the others then load what it has compiled.
    """
    done = DIRECTORY.parent / "compiled"
    if not hasattr(config, "workerinput") or done.exists():
        yield
        return
    with by_one_process("first-collection"):
        if first := not done.exists():
            yield
            done.parent.mkdir(exist_ok=True)
            done.touch()
    if not first:
        yield


def _forget_temporary_files() -> None:
    """What tests wrote and imported is gone with the run."""
    temporary = Path(tempfile.gettempdir()).relative_to("/").parts[:2]
    shutil.rmtree(DIRECTORY.joinpath(*temporary), ignore_errors=True)
