"""Commands one after the other in a process, which starts one JVM: see `Application`."""

import json
import sys
from typing import Final

from tests.support.cli import tidelog

ATTEMPTS: Final = 30
TOO_LATE: Final = "Python worker failed to connect back"
"""What Spark says of a process that it has started, where the machine gave that too little time in
ten seconds; the next start of the query resumes.
"""


def run(commands: list[list[str]]) -> None:
    """Ends the process where a command fails."""
    for arguments in commands:
        for _ in range(ATTEMPTS):
            result = tidelog(*arguments)
            print(result.output, flush=True)
            if TOO_LATE not in result.output:
                break
        if result.exit_code:
            sys.exit(repr(result.exception))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
