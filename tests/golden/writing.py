"""Writes golden files of a new format version, and never touches one that exists."""

from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent


def stored(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def write_missing(files: Mapping[str, Callable[[], bytes]]) -> None:
    """Write the files that are not there yet, and say what was done with each."""
    for name, content in files.items():
        path = FOLDER / name
        if path.exists():
            print(f"kept   {name}")
        else:
            path.write_bytes(content())
            print(f"wrote  {name}")
