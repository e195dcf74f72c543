"""Runs the command line inside the test, on stores laid out in directories."""

from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from tidelog.cli import main


def tidelog(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    """Run `tidelog` with these arguments, and these environment variables besides its own."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=env)


def simulate(*arguments: str) -> Result:
    """Run the simulator's command with these arguments."""
    from tests.simulator.__main__ import command  # noqa: PLC0415  # few tests need it

    return CliRunner().invoke(command, list(arguments))


def lay_out(directory: Path, objects: Mapping[str, bytes]) -> Path:
    """A local store with these objects."""
    for name, data in objects.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory


def files(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}
