"""Commands of tidelog one after the other, on one Spark: see `Application`."""

import json
import sys
from typing import Final

from tests.spark.support.session import build
from tests.support.cli import tidelog

ATTEMPTS: Final = 30
TOO_LATE: Final = "Python worker failed to connect back"
"""What Spark says of a process that it has started, where the machine gave that too little time in
ten seconds; the next start of the query resumes.
"""


def run(arguments: list[str]) -> None:
    """Run a command, which must end well."""
    for _ in range(ATTEMPTS):
        result = tidelog(*arguments)
        print(result.output, flush=True)
        if TOO_LATE not in result.output:
            break
    if result.exit_code:
        sys.exit(repr(result.exception))


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = build(request["master"], request["settings"])
    for arguments in request["commands"]:
        run(arguments)
    spark.stop()


if __name__ == "__main__":
    main()
