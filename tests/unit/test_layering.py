"""The shape of the source: layers without circles, small modules, the outside world injected."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tidelog"

LAYERS = [
    {"errors", "ids"},
    {"effects"},
    {"storage"},
    {"table"},
    {"changelog"},
    {"dstl"},
    {"checkpoint"},
    {"materialize", "state"},
    {"runtime"},
    {"simulate", "estimate", "spark"},
    {"overhead"},
    {"verify"},
    {"bench"},
    {"__init__"},
    {"examples"},
    {"cli"},
    {"__main__"},
]
"""Bottom first: a package imports itself and those in layers below its own."""

MODULE_LINES = 400
FUNCTION_LINES = 70

MODULES = sorted(SOURCE.rglob("*.py"))
BANNED = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep"},
    "asyncio": {"sleep", "to_thread"},
    "random": {"random", "randint", "choice", "shuffle", "uniform", "randbytes", "seed"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom"},
    "threading": {"Thread", "Timer"},
    "secrets": {"token_hex", "token_bytes", "randbelow"},
}


def name_of(path: Path) -> str:
    """`storage.local` for src/tidelog/storage/local.py."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def package_of(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def imports(path: Path) -> Iterator[str]:
    """Modules of tidelog that a module imports, wherever in its text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "tidelog":
                yield _existing(parts[1:])


def _existing(parts: list[str]) -> str:
    """The module that `tidelog.<parts>` names or lies in."""
    while parts:
        base = SOURCE.joinpath(*parts)
        if base.with_suffix(".py").exists():
            return ".".join(parts)
        if (base / "__init__.py").exists():
            return ".".join([*parts, "__init__"])
        parts = parts[:-1]
    return "__init__"


def layer_of(module: str) -> int:
    for number, packages in enumerate(LAYERS):
        if package_of(module) in packages:
            return number
    raise AssertionError(f"{module} belongs to no layer: give it a place in LAYERS")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downwards_only(path: Path) -> None:
    module = name_of(path)
    upwards = [
        target
        for target in imports(path)
        if package_of(target) != package_of(module) and layer_of(target) >= layer_of(module)
    ]
    assert upwards == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): set(imports(path)) - {name_of(path)} for path in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MODULE_LINES
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]
    assert long == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_clocks_chance_and_threads_come_from_effects(path: Path) -> None:
    if name_of(path) == "effects":
        return
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if node.attr in BANNED.get(owner, ()):
                used.add(f"{owner}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module in BANNED:
            used |= {
                f"{node.module}.{alias.name}"
                for alias in node.names
                if alias.name in BANNED[node.module]
            }
    assert used == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_with_code_says_what_it_holds(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not tree.body or ast.get_docstring(tree)
