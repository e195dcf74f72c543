"""Public names, which a package loads on first use; a misspelt one is answered with the next."""

import sys
from collections.abc import Callable, Collection
from typing import Any

import lazy_loader


def public_names(
    package: str, file: str, packages: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of the package at `file`, with what its stub lists;
    `packages` in it are imported by themselves.
    """
    load, directory, names = lazy_loader.attach_stub(package, file)

    def attribute(name: str) -> Any:
        try:
            return load(name)
        except AttributeError as error:
            message = f"{package} has no {name!r}"
            if name in packages:
                message += f" yet: it is a package of its own, `import {package}.{name}`"
            elif name in names or name.startswith("_") or not (close := _close(name, names)):
                raise
            else:
                message += f". Did you mean {close[0]!r}?"
            # `from package import name` replaces an AttributeError by an error of its own.
            if name not in packages and _imports_from(sys._getframe(1)):
                raise ImportError(message, name=package, path=file) from None
            raise AttributeError(message, name=name, obj=sys.modules[package]) from error

    return attribute, directory, names


def _close(name: str, names: list[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415  # only for a mistake

    return get_close_matches(name, names, n=1)


def _imports_from(frame: Any) -> bool:
    """Whether the code of the frame is at a `from ... import`."""
    from opcode import opmap  # noqa: PLC0415  # only for a mistake

    return bool(frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"])
