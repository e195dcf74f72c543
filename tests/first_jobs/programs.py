"""What the small programs share: rows in files, a run to the end, and a run that is stopped."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.output_files import output_lines
from tidelog import CheckpointConfig, Job, JobConfig, JobResult, JobRunner, open_store


def add_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append JSON lines to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """What a `FileSink` has committed."""
    return list(map(json.loads, output_lines(directory)))


def run(
    job: Job,
    store: Path,
    until: Callable[[], bool] | None = None,
    *,
    parallelism: int = 1,
    **settings: Any,
) -> JobResult:
    """Run a job to its end or, with `until`, stop it with a savepoint once that holds.

    `settings` are those of `JobConfig`.
    """

    async def main() -> JobResult:
        schedule = settings.pop("checkpoint", CheckpointConfig(interval=0.05))
        config = JobConfig(parallelism=parallelism, checkpoint=schedule, **settings)
        runner = JobRunner(job, open_store(str(store)), config)
        running = asyncio.create_task(runner.run())
        while until is not None and not until():
            assert not running.done(), running.result()
            await asyncio.sleep(0.005)
        if until is not None:
            await runner.stop()
        return await running

    return asyncio.run(main())
