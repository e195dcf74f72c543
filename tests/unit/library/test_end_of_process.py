"""A program that leaves the close of its database to the end of its process."""

import ctypes
import subprocess
import sys

import pytest

from tests.unit.library.conftest import opened
from tidelog import ValueState

PROGRAM = """
import atexit, sys, threading, tidelog
db = tidelog.open(sys.argv[1], {"total": tidelog.ValueState(int)})
db.key("a").total.set(1)
class Holder:
    def __init__(self):
        self.db = db
    def __del__(self):
        self.db.close()
def held():
    with db:
        yield
def goes_on():
    threading.main_thread().join()
    db.close()
if sys.argv[2] == "atexit":
    atexit.register(db.close)
elif sys.argv[2] == "another thread":
    db.advance("in", 1)
    threading.Thread(target=goes_on).start()
elif sys.argv[2] == "__del__":
    holder = Holder()
else:
    inside = held()
    next(inside)
"""


def ended_with(url: str, closed_by: str) -> str:
    """What a program complains of that leaves the close of its database to its very end."""
    command = [sys.executable, "-c", PROGRAM, url, closed_by]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return done.stderr


@pytest.mark.parametrize("closed_by", ["atexit", "another thread"])
def test_it_may_be_closed_when_the_main_thread_has_ended(url: str, closed_by: str) -> None:
    assert ended_with(url, closed_by) == ""
    with opened(url, total=ValueState(int)) as db:
        assert db.key("a").total.get() == 1


@pytest.mark.parametrize("closed_by", ["__del__", "the end of a generator"])
def test_a_close_when_python_deletes_everything_is_refused_and_waits_for_nothing(
    url: str, closed_by: str
) -> None:
    assert "expected an operation before the process ends" in ended_with(url, closed_by)


FORKS = """
import gc, os, signal, sys, threading, tidelog

def status_of_child(ends):
    child = os.fork()
    if not child:
        signal.alarm(60)
        ends()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def drops():
    del globals()["db"], globals()["view"]
    gc.collect()
    sys.exit(3)

def work():
    number = 0
    while not done.is_set():
        with db.step():
            for number in range(number, number + 100):
                db.key(number).total.set(number)

done = threading.Event()
with tidelog.open(sys.argv[1], {"total": tidelog.ValueState(int)}) as db:
    worker = threading.Thread(target=work)
    worker.start()
    db.checkpoint()
    with tidelog.open(sys.argv[1], checkpoint="latest") as view:
        for ends in (sys.exit, lambda: sys.exit(7), drops):
            print(status_of_child(ends))
    done.set()
    worker.join()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "on_exit"), reason="a call of glibc")
def test_a_forked_child_ends_as_any_other_process_with_its_own_status(url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, url]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["0", "7", "3"], done.stderr
