"""The page "Running it for a year": its files and commands work as they are printed, in order."""

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import pytest
import yaml

from tests.process.harness import GIVE_UP_S, ROOT, is_alive, killed_at_last, newest_slot, wait_until
from tests.support.cli import tidelog
from tests.support.ports import free_port
from tidelog.cli.exit_codes import EXIT_FENCED, EXIT_INTERRUPTED, EXIT_USAGE
from tidelog.cli.run.running import STOP_LIMIT_S
from tidelog.runtime.control import protocol

PAGE = (ROOT / "docs" / "guides" / "operations.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

SYSTEMCTL = """\
#!{python}
# What the page needs of systemd: start a unit's command in the background, look whether it runs.
import os, pathlib, subprocess, sys
verb, name = [word for word in sys.argv[1:] if not word.startswith("-")]
root = pathlib.Path("{root}")
lines = (root / f"etc/systemd/system/{{name}}.service").read_text().splitlines()
unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
name_, value = unit["Environment"].split("=", 1)
(root / "run" / unit["RuntimeDirectory"]).mkdir(parents=True, exist_ok=True)
pid = root / f"{{name}}.pid"
if verb in ("start", "enable"):
    with (root / f"{{name}}.log").open("ab") as log:
        command = f'{{unit["ExecStart"]}}; echo $? >> {{root}}/{{name}}.exits'
        child = subprocess.Popen(
            ["sh", "-c", command], cwd=unit["WorkingDirectory"], stdout=log, stderr=log,
            start_new_session=True, env=os.environ | {{name_: value}},
        )
    pid.write_text(str(child.pid))
elif verb == "status":
    os.kill(int(pid.read_text()), 0)
else:
    sys.exit(f"no {{verb}} here")
"""


class Machine:
    """A machine in a directory, on which the page's files and commands are at home."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = str(free_port())
        for directory in ("bin", "srv/revenue/.venv/bin", "srv/orders", "etc/tidelog", "var/tmp"):
            (root / directory).mkdir(parents=True)
        (root / "etc/systemd/system").mkdir(parents=True)
        self._command("systemctl", SYSTEMCTL.format(python=sys.executable, root=root))
        self._command("sudo", '#!/bin/sh\n[ "$1" = -u ] && shift 2\nexec "$@"\n')
        run_tidelog = f'#!/bin/sh\nexec {sys.executable} -m tidelog "$@"\n'
        self._command("../srv/revenue/.venv/bin/tidelog", run_tidelog)
        self.order(0)

    def _command(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def localized(self, text: str) -> str:
        """A printed text with this machine's places in it."""
        for place in ("/srv/", "/etc/tidelog/", "/var/lib/", "/var/tmp/", "/run/tidelog"):
            text = re.sub(rf"(?<![\w/]){place}", f"{self.root}{place}", text)
        return text.replace("s3://acme-streams/", f"{self.root}/bucket/").replace("9464", self.port)

    def write(self, block: str) -> None:
        """Write a printed file; its first line has its name."""
        name = block.partition("\n")[0].removeprefix("# ").strip()
        assert name.startswith("/"), f"a file without a name: {name}"
        path = self.root / name.removeprefix("/")
        path.write_text(self.localized(block))

    def order(self, number: int) -> None:
        """One more file of orders."""
        rows = [{"country": country, "amount": number} for country in ("at", "nl")]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (self.root / f"srv/orders/{number}.jsonl").write_text(lines)

    def run(self, commands: str) -> None:
        """What a block prints, line by line."""
        for line in self.localized(commands).replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if words[:3] == ["sudo", "-u", "tidelog"]:
                words = words[3:]
            if words[1:3] == ["checkpoints", "drop"]:
                self.order(len(list((self.root / "srv/orders").iterdir())) + 1000)
                self.wait_for_slots(1)  # which has passed when a person types it
            if words[0] == "tidelog":
                done = tidelog(*words[1:])
                assert done.exit_code == 0, f"{line}\n{done.output}"
                while words[1] == "stop" and is_alive(self.pid()):
                    time.sleep(0.05)  # the process has ended when a person types the next line
            else:
                self._in_a_shell(line)

    def _in_a_shell(self, command: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=GIVE_UP_S,
            check=False,
        )
        log = self.root / "revenue.log"
        told = log.read_text() if log.exists() else ""
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}\n{told}"

    def wait_for_slots(self, more: int) -> None:
        """Until the running job has written so many more."""
        log = self.root / "revenue.log"
        store, give_up = self.root / "bucket/revenue", time.monotonic() + GIVE_UP_S
        wanted = newest_slot(store) + more
        while newest_slot(store) < wanted:
            assert time.monotonic() < give_up and is_alive(self.pid()), log.read_text()
            time.sleep(0.05)

    def pid(self) -> int:
        return int((self.root / "revenue.pid").read_text())

    def stop(self) -> None:
        """No process outlives the test."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.killpg(self.pid(), signal.SIGKILL)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    # A short path: those of sockets are limited to about a hundred bytes.
    with TemporaryDirectory(prefix="year", dir="/tmp") as root:
        made = Machine(Path(root))
        monkeypatch.setattr(protocol, "UNITS", made.root / "run/tidelog")
        yield made
        made.stop()


def test_every_file_and_command_of_the_page_works_in_the_order_they_are_printed(
    machine: Machine,
) -> None:
    printed = {language for language, _ in BLOCKS}
    assert printed == {"sh", "python", "toml", "ini", "yaml"}
    for number, (language, block) in enumerate(BLOCKS):
        if language != "sh":
            machine.write(block)
            continue
        machine.run(block)
        if "systemctl enable" in block or "systemctl start" in block:
            machine.order(number)
            machine.wait_for_slots(3)
    rows = (machine.root / "var/tmp/drill").rglob("*.jsonl")
    assert {"at", "nl"} <= set(re.findall(r'"(at|nl)"', "".join(map(Path.read_text, rows))))
    unit = (machine.root / "etc/systemd/system/revenue.service").read_text()
    assert f"RestartPreventExitStatus={EXIT_USAGE} {EXIT_FENCED}\n" in unit
    stop_s = int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)[0])
    assert stop_s > STOP_LIMIT_S
    # Or systemd takes every `systemctl stop` for a failure of the unit.
    assert f"SuccessExitStatus={EXIT_INTERRUPTED}\n" in unit


def test_the_deployment_of_the_page_runs_answers_its_probe_and_ends_by_sigterm(
    machine: Machine,
) -> None:
    for language, block in BLOCKS:
        if language in ("python", "toml", "yaml"):
            machine.write(block)
    deployment = yaml.safe_load((machine.root / "srv/revenue/revenue.yaml").read_text())
    assert deployment["spec"]["replicas"] == 1
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > STOP_LIMIT_S
    command = [*container["command"], *container["args"]]
    environment = {**os.environ, protocol.DIRECTORY_VARIABLE: str(machine.root / "run")}
    process = subprocess.Popen(command, cwd=container["workingDir"], env=environment)
    with killed_at_last(process):
        wait_until(lambda: newest_slot(machine.root / "bucket/revenue") > 0, process)
        for probe in ("startupProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            with urlopen(
                f"http://127.0.0.1:{container['ports'][0]['containerPort']}{path}"
            ) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(pod["terminationGracePeriodSeconds"]) == EXIT_INTERRUPTED
