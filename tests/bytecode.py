"""Compiled modules are kept between processes, also where Python was told to keep none.

A run starts hundreds of processes. Where `PYTHONDONTWRITEBYTECODE` is set, as in many container
images, each of them compiles the library and what it imports anew: half of what it takes.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
"""Not beside the sources: whoever set the variable wants nothing there."""


def keep_bytecode(config: pytest.Config) -> None:
    """From now on, in this process and in those that it starts; nothing where it is so anyway."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(DIRECTORY))
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"]
        sys.dont_write_bytecode = False
        config.add_cleanup(_forget_temporary_files)


def _forget_temporary_files() -> None:
    """What tests wrote and imported is gone with the run."""
    temporary = Path(tempfile.gettempdir()).relative_to("/").parts[:2]
    shutil.rmtree(DIRECTORY.joinpath(*temporary), ignore_errors=True)
