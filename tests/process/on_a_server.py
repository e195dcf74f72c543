"""A job on a real server of objects, behind a proxy that makes the server misbehave."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.process.harness import Run, killed_at_last, wait_until
from tests.wire.proxy import Behaviour, proxy
from tests.wire.servers import S3Server


def with_lines(run: Run, lines: int = 2000) -> Run:
    text = "".join(f"line {number} of {lines}\n" for number in range(lines))
    (run.input / "lines.txt").write_text(text)
    return run


@contextmanager
def job_on_a_server(
    tmp_path: Path, server: S3Server, behaviour: Behaviour, *options: str
) -> Iterator[tuple["subprocess.Popen[str]", Run]]:
    """A job that has checkpoints on a store behind a proxy, and how it was started."""

    def slots() -> list[str]:
        with closing(server.client()) as client:
            found = client.list_objects_v2(Bucket=server.bucket, Prefix=f"{prefix}/checkpoints/")
        return [entry["Key"].rpartition("/")[2] for entry in found.get("Contents", ())]

    prefix = tmp_path.name
    with proxy(server.endpoint, behaviour) as endpoint:
        env = server.env | {"AWS_ENDPOINT_URL": endpoint}
        url = server.url(prefix)
        run = Run(tmp_path, "tests.process.jobs:copy", options, url, env, slots)
        with_lines(run)
        with killed_at_last(run.start(stderr=subprocess.DEVNULL)) as process:
            wait_until(lambda: run.slots() >= 3, process)
            yield process, run
