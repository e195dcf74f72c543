"""The recipes for Docker and Kubernetes, with processes for containers and folders for volumes.

Each container has the command, the environment, the mounts, the probes and the way to stop that
the files and the page give it.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from dockerfile_parse import DockerfileParser

from tests.first_jobs.programs import add_rows, rows_of
from tests.process.harness import GIVE_UP_S, ROOT, wait_until
from tests.support.ports import free_port
from tests.wire.servers import S3Server

FOLDER = ROOT / "docs" / "operations" / "container"
PAGE = (ROOT / "docs" / "guides" / "cookbook.md").read_text()
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SIGNALLED, STOPPED = 130, 0
"""Exit codes of a job that SIGTERM ends, and of one that a savepoint ends."""


class Image:
    """What the Dockerfile makes."""

    def __init__(self) -> None:
        parser = DockerfileParser(str(FOLDER), fileobj=None)
        self.steps = [(step["instruction"], step["value"]) for step in parser.structure]
        self.environment = parser.envs
        self.entrypoint: list[str] = json.loads(self.values("ENTRYPOINT")[0])
        self.copies = [value.split() for value in self.values("COPY")]

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.steps if name == instruction]


IMAGE = Image()


@dataclass(frozen=True)
class Container:
    """One container as the recipes start and stop it."""

    arguments: list[str]
    environment: dict[str, str]
    mounts: list[str]
    """Folders in it that outlive it."""
    stop: list[str] | None
    """What runs in it before SIGTERM."""
    grace_s: int
    """Seconds after which it is killed."""
    in_s3: bool
    probes: list[str]
    """Paths that are asked at its port of metrics."""


def docker_containers() -> Iterator[Container]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--detach", action="store_true", required=True)
    for option in ("name", "restart", "volume", "publish", "env-file"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--stop-timeout", type=int)
    parser.add_argument("image")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    for command in COMMANDS:
        if command[:2] == ["docker", "run"]:
            run = parser.parse_args(command[2:])
            yield Container(
                arguments=run.arguments,
                environment={},
                mounts=[run.volume.partition(":")[2]],
                stop=None,
                grace_s=run.stop_timeout,
                in_s3=run.env_file is not None,
                probes=["/healthz"],
            )


def pod_container(file: str) -> Container:
    manifest = yaml.safe_load((FOLDER / file).read_text())
    pod = manifest["spec"]["template"]["spec"]
    [container] = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {ports[probe["port"]] for probe in probes} == {port_of(IMAGE.entrypoint)}
    volumes = pod["volumes"] + manifest["spec"].get("volumeClaimTemplates", [])
    names = {volume.get("name") or volume["metadata"]["name"] for volume in volumes}
    assert {mount["name"] for mount in container["volumeMounts"]} == names
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"] == labels
    return Container(
        arguments=container["args"],
        environment={each["name"]: each["value"] for each in container["env"]},
        mounts=[mount["mountPath"] for mount in container["volumeMounts"]],
        stop=container["lifecycle"]["preStop"]["exec"]["command"],
        grace_s=pod["terminationGracePeriodSeconds"],
        in_s3="envFrom" in container,
        probes=[probe["path"] for probe in probes],
    )


def port_of(command: list[str]) -> int:
    return int(command[command.index("--metrics-port") + 1])


CONTAINERS = {
    **dict(zip(("docker, volume", "docker, S3"), docker_containers(), strict=True)),
    "kubernetes, volume": pod_container("volume.yml"),
    "kubernetes, S3": pod_container("s3.yml"),
}
_stores = count()


class Host:
    """Runs a container as a process whose root is a folder."""

    def __init__(self, root: Path, container: Container, server: S3Server) -> None:
        self._root = root
        self._container = container
        self.port = free_port()
        self._store = server.url(f"container-{next(_stores)}")
        self.data = root / "data"
        for mount in container.mounts:
            (root / mount.lstrip("/")).mkdir(parents=True)
        assert "/data" in container.mounts
        (root / "job").mkdir()
        for *sources, target in IMAGE.copies:
            if target == "/job/":
                shutil.copy(ROOT / sources[0], root / "job")
        values = {**IMAGE.environment, **container.environment}
        if container.in_s3:
            values |= {name: server.env[name] for name in server.env if name not in values}
        self._environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment |= {name: self._localized(value) for name, value in values.items()}
        if "TIDELOG__ENCRYPTION_KEY" in values:
            self.run("tidelog", "key", "new", "/etc/tidelog/key")

    def _localized(self, text: str) -> str:
        text = text.replace("s3://acme-streams/revenue", self._store)
        text = re.sub(r"(?<![\w/:])/(data|etc/tidelog)\b", rf"{self._root}/\1", text)
        return re.sub(rf"\b{port_of(IMAGE.entrypoint)}\b", str(self.port), text)

    def _command(self, command: tuple[str, ...] | list[str]) -> list[str]:
        assert command[0] == "tidelog"
        return [sys.executable, "-m", *map(self._localized, command)]

    def run(self, *command: str) -> str:
        """Run a command in the container to a good end; what it has printed."""
        done = subprocess.run(
            self._command(command),
            env=self._environment,
            cwd=self._root / "job",
            capture_output=True,
            text=True,
            timeout=GIVE_UP_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def started(self) -> Iterator["subprocess.Popen[str]"]:
        """The container, killed at the end if it still runs."""
        command = self._command([*IMAGE.entrypoint, *self._container.arguments])
        log = self._root / "log.txt"
        with log.open("a") as text:
            process = subprocess.Popen(
                command, env=self._environment, cwd=self._root / "job", stdout=text, stderr=text
            )
        try:
            wait_until(self.is_healthy, process)
            yield process
        finally:
            process.kill()
            process.wait()

    def is_healthy(self) -> bool:
        for path in self._container.probes:
            with (
                suppress(OSError),
                urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as page,
            ):
                assert page.status == 200
                continue
            return False
        return True

    def stop(self, process: "subprocess.Popen[str]") -> int:
        """End it as the orchestrator does; its exit code."""
        if self._container.stop is not None:
            self.run(*self._container.stop)
        process.send_signal(signal.SIGTERM)
        return process.wait(self._container.grace_s)

    def totals(self) -> dict[str, int]:
        """The newest total of each country; each total was written once."""
        if not (self.data / "out").exists():
            return {}
        rows = [(row["country"], row["revenue"]) for row in rows_of(self.data / "out")]
        assert len(set(rows)) == len(rows)
        return dict(sorted(rows))


def orders(number: int) -> list[dict[str, Any]]:
    return [{"country": ("de", "nl")[n % 2], "amount": 1} for n in range(number)]


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_counts_each_order_once_over_stops_and_kills(
    name: str, tmp_path: Path, moto: S3Server
) -> None:
    container = CONTAINERS[name]
    host = Host(tmp_path, container, moto)
    total = 0

    def count_more(process: "subprocess.Popen[str]") -> None:
        nonlocal total
        total += 100
        add_rows(host.data / "orders" / f"{total}.jsonl", orders(200))
        wait_until(lambda: host.totals() == {"de": total, "nl": total}, process)

    (host.data / "orders").mkdir()
    with host.started() as process:
        count_more(process)
        code = SIGNALLED if container.stop is None else STOPPED
        assert host.stop(process) == code, (tmp_path / "log.txt").read_text()
    with host.started() as process:
        count_more(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with host.started() as process:
        count_more(process)
        [stop] = [command[3:] for command in COMMANDS if command[:2] == ["docker", "exec"]]
        host.run(*stop[:-1], store_of(container.arguments))
        assert process.wait(container.grace_s) == STOPPED


def store_of(arguments: list[str]) -> str:
    words = [word for argument in arguments for word in argument.split("=")]
    return words[words.index("--store") + 1]


def test_the_image_has_what_its_commands_need() -> None:
    copied = [source for *sources, target in IMAGE.copies for source in sources]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = ["pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]]
    needed += [*wheel["packages"], *wheel["force-include"]]
    assert [path for path in needed if not path.startswith(tuple(copied))] == []
    [install] = [value for value in IMAGE.values("RUN") if value.startswith("pip install")]
    extras = re.findall(r"\[(.*)\]", install)[0].split(",")
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])
    assert IMAGE.values("EXPOSE") == [str(port_of(IMAGE.entrypoint))]


def test_the_page_builds_and_names_what_the_files_use() -> None:
    [build] = [command for command in COMMANDS if command[:2] == ["docker", "build"]]
    assert ROOT / build[build.index("--file") + 1] == FOLDER / "Dockerfile"
    for name in ("volume.yml", "s3.yml"):
        text = (FOLDER / name).read_text()
        assert f"image: {build[build.index('--tag') + 1]}\n" in text
        applied = [
            ROOT / command[-1] for command in COMMANDS if command[:2] == ["kubectl", "apply"]
        ]
        assert FOLDER / name in applied
    secrets = {
        command[4] for command in COMMANDS if command[1:4] == ["create", "secret", "generic"]
    }
    used = re.findall(
        r"(?:secretName|secretRef: \{name): ([\w-]+)",
        "".join(path.read_text() for path in FOLDER.glob("*.yml")),
    )
    assert secrets == set(used)
