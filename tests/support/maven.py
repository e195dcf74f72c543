"""Jars from Maven's repositories, fetched once and kept."""

import shutil
import subprocess
import tempfile
from pathlib import Path

_TOOLS = Path(__file__).parents[2] / ".tools"


class JarsUnavailableError(Exception):
    """This machine cannot get the jars; the message says why."""


def jars_of(pom: Path, name: str, **properties: str) -> list[Path]:
    """What the dependencies of a POM are with these properties, kept in `.tools/` under this name;
    raises JarsUnavailableError.
    """
    return sorted(fetched(pom, _TOOLS / name, **properties).glob("*.jar"))


def fetched(pom: Path, directory: Path, **properties: str) -> Path:
    """The directory, which appears with all jars or not at all; raises JarsUnavailableError."""
    if directory.is_dir():
        return directory
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError(f"{directory.name} needs `mvn` on the PATH to be fetched")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        jars = Path(scratch) / "jars"
        command = [
            *(maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
            *(f"-D{key.replace('_', '.')}={value}" for key, value in properties.items()),
            f"-DoutputDirectory={jars}",
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise JarsUnavailableError(
                f"{directory.name} could not be fetched: {run.stdout[-500:]}"
            )
        if not directory.is_dir():  # another process may have been first
            jars.rename(directory)
    return directory
