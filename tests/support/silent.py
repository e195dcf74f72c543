"""A server's address in between, which may fall silent: it takes all and answers nothing."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread


class Between:
    """Passes bytes on to a server's socket, until it is silent; without a server it always is."""

    def __init__(self, server: Path | tuple[str, int] | None) -> None:
        self._server = server
        self._speaks = Event()
        self._speaks.set()
        self._asked = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        self._asked.clear()
        self._speaks.clear()

    def was_asked(self) -> bool:
        """Whether anything was said to the server since it fell silent."""
        return self._asked.is_set()

    def speak(self) -> None:
        """Also what was said meanwhile is passed on."""
        self._speaks.set()

    def close(self) -> None:
        self._speaks.set()
        for line in (self._listener, *self._open):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                if self._server is None:
                    Thread(target=self._hear, args=(client,), daemon=True).start()
                else:
                    is_path = isinstance(self._server, Path)
                    server = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
                    server.connect(str(self._server) if is_path else self._server)
                    self._open.append(server)
                    for ends in ((client, server), (server, client)):
                        Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _hear(self, client: socket.socket) -> None:
        with suppress(OSError):
            while client.recv(1 << 16):
                self._asked.set()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self._speaks.is_set():
                    self._asked.set()
                self._speaks.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def between(server: Path | tuple[str, int] | None = None) -> Iterator[Between]:
    line = Between(server)
    try:
        yield line
    finally:
        line.close()
