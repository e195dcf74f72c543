"""An installed Chromium, driven over pipes by its DevTools protocol; needs no library."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--window-size=1280,780",
)
# The protocol wants descriptors 3 and 4, which may be taken here.
_LAUNCH = (
    "import fcntl, os, sys;"
    "r, w = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]);"
    "os.dup2(r, 3); os.dup2(w, 4);"
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def installed() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab: commands, and all events seen so far."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = requests
        self._answers = os.fdopen(answers, "rb")
        self._number = 0
        self._session: str | None = None
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def show(self, file: Path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        while not self.seen("Page.loadEventFired"):
            self.events.append(self._read())

    def seen(self, method: str) -> list[dict[str, Any]]:
        """Parameters of all events of a kind."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = self._answers.read1(1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def page(executable: str, profile: Path) -> Iterator[Page]:
    """A browser with one tab; killed in the end."""
    theirs_in, requests = os.pipe()
    answers, theirs_out = os.pipe()
    command = [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), executable]
    process = subprocess.Popen(
        [*command, *_OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    fcntl.fcntl(requests, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    found = Page(requests, answers)
    try:
        found.attach()
        yield found
    finally:
        os.close(requests)
        os.killpg(process.pid, 9)
        process.wait()
