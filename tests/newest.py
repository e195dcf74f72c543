"""The README's first command and the tests without Spark, with the libraries that users get.

These are the newest versions that `pyproject.toml` allows. `just newest` makes an environment in
.tools/newest anew, shows what in it is of another version than what is locked, and passes its
arguments on to pytest.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
EXTRAS: Final = "s3,s3fs,az,gs,encryption,metrics,kafka,parquet,iceberg,postgres,plots,spark"
README: Final = (ROOT / "README.md").read_text()
PYTHON: Final = ROOT / ".tools" / "newest" / "bin" / "python"
SCHEDULE: Final = ("-n", "4", "--dist", "worksteal", "--ignore=tests/spark")


def main() -> None:
    uv = [str(Path(sys.executable).with_name("uv"))]
    environment = ["venv", "-q", "--clear", "--python", sys.executable, str(PYTHON.parents[1])]
    subprocess.run([*uv, *environment], cwd=ROOT, check=True)
    groups = ["--group", "dev", "--group", "wire", "uv", "-e", f".[{EXTRAS}]"]
    install = ["pip", "install", "-q", "--upgrade", "--python", str(PYTHON), *groups]
    subprocess.run([*uv, *install], cwd=ROOT, check=True)
    listed = [*uv, "pip", "freeze", "--python", str(PYTHON)]
    frozen = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    print("\n".join(newer(frozen, (ROOT / "locked.txt").read_text())), flush=True)
    run_first_command()
    # The servers are those of the tests' own environment.
    subprocess.run([sys.executable, "-m", "tests.wire.servers"], cwd=ROOT, check=True)
    tests = [str(PYTHON), "-m", "pytest", *SCHEDULE, *sys.argv[1:]]
    sys.exit(subprocess.run(tests, cwd=ROOT, check=False).returncode)


def run_first_command() -> None:
    """What the README has users try first, in this environment."""
    [command] = re.findall(r"^python3 .*&& (\.venv/bin/tidelog run .*)$", README, re.MULTILINE)
    with tempfile.TemporaryDirectory() as out:
        ours = command.replace(".venv/bin", str(PYTHON.parent)).replace("out/", f"{out}/")
        subprocess.run(ours, shell=True, cwd=ROOT, check=True)


def newer(frozen: str, locked: str) -> list[str]:
    """A line for each library of another version than the lock has."""
    known = versions(locked)
    found = versions(frozen)
    return [
        f"{name}: {version}, locked {known[name]}"
        for name, version in sorted(found.items())
        if known.get(name, version) != version
    ]


def versions(text: str) -> dict[str, str]:
    """By name, of lines such as `click==8.1`."""
    lines = [line.partition(";")[0].strip(" \\") for line in text.splitlines()]
    pairs = [line.split("==") for line in lines if line.count("==") == 1]
    return {canonicalize_name(name): version for name, version in pairs}


if __name__ == "__main__":
    main()
