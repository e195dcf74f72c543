"""Commands one after the other in a process, which starts one JVM: see `Application`."""

import json
import sys

from tidelog.cli import main


def run(commands: list[list[str]]) -> None:
    """Ends the process where a command fails."""
    for arguments in commands:
        try:
            main(arguments)
        except SystemExit as end:
            if end.code:
                raise


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
