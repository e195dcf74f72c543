"""The Java of this machine, and programs in Java that are compiled on first use and kept.

Invariants: a kept jar is the one that its source, classpath and options make, for its name is
their hash; it appears under its name complete or not at all, so several processes may ask at once.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.effects import cache_directory
from tidelog.errors import ConfigError

_OPTIONS: Final = ("--release", "17", "-encoding", "UTF-8")
_HASH_DIGITS: Final = 16


def java_tool(name: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """The path of `java` or `javac`: of $JAVA_HOME, else on the PATH; None when there is none."""
    home = variables.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    return shutil.which(name, path=variables.get("PATH"))


def compiled(source: Path, libraries: Path) -> Path:
    """The jar of one Java file against all jars of a directory; raises ConfigError."""
    digest = hashlib.sha256("\0".join(_OPTIONS).encode())
    for jar in sorted(libraries.glob("*.jar")):
        digest.update(f"\0{jar.name}\0{jar.stat().st_size}".encode())
    digest.update(b"\0" + source.read_bytes())
    key = digest.hexdigest()[:_HASH_DIGITS]
    target = cache_directory() / "peers" / f"{source.stem}-{key}.jar"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as scratch:
            classes, packed = Path(scratch) / "classes", Path(scratch) / target.name
            classes.mkdir()
            _compile(source, libraries, classes)
            # The plug-in's own `pack` needs libraries that a peer's environment lacks.
            with zipfile.ZipFile(packed, "w") as archive:
                for path in classes.rglob("*.class"):
                    archive.write(path, path.relative_to(classes))
            packed.replace(target)
    return target


def _compile(source: Path, libraries: Path, classes: Path) -> None:
    command = [java_tool("javac") or "javac", *_OPTIONS, "-cp", str(libraries / "*")]
    run = subprocess.run(
        [*command, "-d", str(classes), str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode:
        raise ConfigError(
            f"Java source {source.name}",
            expected=f"that javac accepts it with the jars in {libraries}",
            found=f"exit code {run.returncode} and\n{run.stdout.strip()}\n",
            action="install the version of the peer that `just peers` installs",
        )
