"""A place in a driver's life where it can be stopped: the PUT of one object, at the proxy."""

from collections.abc import Callable
from threading import Event

from tests.spark.support.patience import PATIENCE_S
from tests.wire.proxy import Exchange


class Gate:
    """Holds the requests that `is_place` is true of until the test opens the gate."""

    def __init__(self, is_place: Callable[[Exchange], bool]) -> None:
        self._is_place = is_place
        self._reached = Event()
        self._opened = Event()

    def hold(self, exchange: Exchange) -> bool:
        """Whether this request was held; returns when the gate is open."""
        if not self._is_place(exchange):
            return False
        self._reached.set()
        assert self._opened.wait(PATIENCE_S), "nobody opened the gate"
        return True

    def await_driver(self) -> None:
        """Until a driver stands before the gate."""
        assert self._reached.wait(PATIENCE_S), "no driver came to the gate"

    def open(self) -> None:
        self._opened.set()


def put_of(part_of_path: str) -> Callable[[Exchange], bool]:
    """The writes of objects whose path has this part."""
    return lambda exchange: exchange.method == "PUT" and part_of_path in exchange.path
