"""Digests of the code that an experiment runs: whether its recorded figures are of today's code.

Invariant: comments, docstrings and what an experiment does not import change no digest. A package's
`__init__` counts where it is imported itself, not where a module below it is.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import tidelog
from tidelog_bench.experiment import Experiment
from tidelog_bench.experiments import experiments
from tidelog_bench.session.records import SessionRecord

_LIBRARY: Final = Path(tidelog.__file__).parent
_ROOTS: Final = {"tidelog": _LIBRARY.parent, "tidelog_bench": Path(__file__).parents[2]}
_CHECKOUT: Final = _LIBRARY.parents[1]


def digest(experiment: Experiment) -> str:
    """Of all modules that the experiment imports, in functions too, and of what it has in `also`.

    A package in `also` stands for all its modules, a directory for its files that are not Python.
    One that is not there, as in an installation without a checkout, counts as empty.
    """
    starts = [experiment.cells.__module__, experiment.measure.__module__]
    found = hashlib.blake2b(digest_size=8)
    for name in experiment.also:
        if "/" not in name:
            starts += _below(name)
            continue
        for path in sorted((_CHECKOUT / name).rglob("*")):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                found.update(path.relative_to(_CHECKOUT).as_posix().encode() + path.read_bytes())
    for module in sorted(_reachable(starts)):
        found.update(f"{module} {_module(module)[0]}".encode())
    return found.hexdigest()


def changed(session: SessionRecord) -> list[str]:
    """The experiments of a session whose code is not known to be what it was, or is gone."""
    return [name for name in session.sources or session.names if is_stale(session, name)]


def is_stale(session: SessionRecord, name: str) -> bool:
    """Whether the code of an experiment is not known to be what it was in a session."""
    known = experiments().get(name)
    return known is None or session.sources.get(name) != digest(known)


def _reachable(starts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    left = [name for name in starts if _path(name) is not None]
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += _module(module)[1]
    return found


def _below(name: str) -> list[str]:
    """A module, or a package with all its modules."""
    path = _path(name)
    if path is None or path.name != "__init__.py":
        return [name]
    modules = (each.relative_to(path.parent).with_suffix("") for each in path.parent.rglob("*.py"))
    return [".".join((name, *each.parts)).removesuffix(".__init__") for each in modules]


@cache
def _path(module: str) -> Path | None:
    root = _ROOTS.get(module.partition(".")[0])
    if root is None:
        return None
    base = root.joinpath(*module.split("."))
    places = (base / "__init__.py", base.with_suffix(".py"))
    return next(filter(Path.exists, places), None)


@cache
def _module(name: str) -> tuple[str, list[str]]:
    """The code of a module as a digest, and the modules of ours that it imports."""
    path = _path(name)
    assert path is not None
    tree = ast.parse(path.read_bytes())
    code = hashlib.blake2b("".join(_code(tree)).encode(), digest_size=8).hexdigest()
    return code, [each for each in dict.fromkeys(_imports(tree)) if _path(each) is not None]


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
                for alias in node.names:
                    yield _public().get(alias.name, "") if module == "tidelog" else ""
                    yield f"{module}.{alias.name}"
            case ast.Attribute(value=ast.Name(id="tidelog")):
                yield _public().get(node.attr, "")


@cache
def _public() -> dict[str, str]:
    """The modules of the names that `tidelog` loads on first use, as its stub has them."""
    stub = ast.parse((_LIBRARY / "__init__.pyi").read_bytes())
    return {
        alias.name: f"tidelog.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _code(node: object) -> Iterator[str]:
    """A tree as text, the same with every version of Python, without texts that do nothing.

    Fields that are empty are left out: later versions have more of them.
    """
    if isinstance(node, list):
        yield "["
        for each in node:
            match each:
                case ast.Expr(value=ast.Constant(value=str())):
                    continue
            yield from _code(each)
        yield "]"
    elif isinstance(node, ast.AST):
        yield type(node).__name__
        for name, value in ast.iter_fields(node):
            if value is not None and value != []:
                yield f" {name}="
                yield from _code(value)
        yield ";"
    else:
        yield repr(node)
