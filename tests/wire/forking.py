"""Runs command lines of tidelog, each in a process of its own that need not import it again.

A module that is run begins processes as they are told on its standard input, one line of JSON each,
and tells their exit codes. What a command remembers, such as secrets to hide, ends with it.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.process.harness import ROOT


class Forking:
    """Starts commands one after the other, all in one environment and directory."""

    def __init__(self, process: "subprocess.Popen[str]", output: Path) -> None:
        self._process = process
        self._output = output

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run `tidelog` with these arguments to its end."""
        outputs = [f"{self._output}.{kind}" for kind in ("out", "err")]
        self._process.stdin.write(json.dumps([list(arguments), *outputs]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(
            arguments, code, *(Path(output).read_bytes() for output in outputs)
        )


@contextmanager
def forking(env: dict[str, str], directory: Path, output: Path) -> Iterator[Forking]:
    """Commands in this environment and directory, whose outputs are in files by this name."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=ROOT,
        env=env | {"TIDELOG_TEST_DIRECTORY": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Forking(process, output)


def serve() -> None:
    import click  # noqa: PLC0415  # only in the process of its own

    from tidelog.cli import main  # noqa: PLC0415
    from tidelog.storage import s3  # noqa: F401, PLC0415

    for name in main.list_commands(click.Context(main)):
        if name != "bench":
            main.get_command(click.Context(main), name)
    os.chdir(os.environ.pop("TIDELOG_TEST_DIRECTORY"))
    for line in sys.stdin:
        arguments, out, err = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(arguments, out, err)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(arguments: list[str], out: str, err: str) -> None:
    """Run a command instead of this process; does not return."""
    from tidelog.cli import main  # noqa: PLC0415

    for descriptor, path in ((0, os.devnull), (1, out), (2, err)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(path, flags, 0o600), descriptor)
    code = 1
    try:
        main(arguments, prog_name="python -m tidelog")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
