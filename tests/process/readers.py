"""Somebody who reads a table all the time while the job that fills it is killed."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Read = Callable[[], list[str]]
"""All lines that are visible now; a line begins with its file and its number: "2-17 ..."."""

_PAUSE_S = 0.01
"""A tenth of the time from one commit to the next."""


class Watcher:
    """Looks again and again; what it objects to is raised by `check`."""

    def __init__(self, read: Read, *, in_order: bool) -> None:
        self._read = read
        self._in_order = in_order
        self._seen: set[str] = set()
        self._objection: BaseException | None = None
        self.looks = 0
        self.changes = 0

    def check(self) -> None:
        """What was visible stays so, nothing is visible twice, and no line is left out."""
        if self._objection is not None:
            raise self._objection

    def look(self) -> None:
        lines = self._read()
        visible = set(lines)
        assert len(lines) == len(visible), "a line is visible twice"
        assert visible >= self._seen, "a line has disappeared"
        self.changes += visible > self._seen
        if self._in_order:
            for file, numbers in _numbers(lines).items():
                missing = set(range(len(numbers))) - numbers
                assert not missing, f"lines {sorted(missing)} of file {file} are left out"
        self._seen = visible
        self.looks += 1

    def _run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(_PAUSE_S):
                self.look()
        except BaseException as objection:
            self._objection = objection

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look from a thread until the block ends."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        self.check()
        self.look()


def _numbers(lines: Iterable[str]) -> dict[str, set[int]]:
    numbers: dict[str, set[int]] = {}
    for line in lines:
        file, _, number = line.partition(" ")[0].partition("-")
        numbers.setdefault(file, set()).add(int(number))
    return numbers
