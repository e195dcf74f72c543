"""The shape of the source: the layers of ARCHITECTURE.md, small modules, an injected outside."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LIBRARY = "tidelog"
TOOLS = {"tidelog_bench"}
PUBLIC = {"spark", "examples"}
"""Packages of the library that programs import, besides `tidelog` itself."""
SPACIOUS = ["tidelog/runtime", "tidelog/cli", "tidelog/spark", "tidelog_bench"]
LOOSE_FILES = 10


def table_of_packages() -> list[tuple[set[str], set[str] | None]]:
    """The rows of ARCHITECTURE's table: packages, and what they may import; None for all below."""
    rows = re.findall(r"^\| (`.*?) \| .* \| (.*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    return [
        (
            {name.rstrip("/") for name in re.findall("`(.*?)`", packages)},
            None if targets == "below" else set(re.findall("`(.*?)`", targets)),
        )
        for packages, targets in rows
        if targets in ("below", "nothing") or targets.startswith("`")
    ]


def allowed_imports() -> dict[str, set[str]]:
    """What each package may import, beside itself."""
    allowed: dict[str, set[str]] = {}
    below: set[str] = set()
    for packages, targets in reversed(table_of_packages()):
        for package in packages:
            allowed[package] = set(below) if targets is None else targets
        below |= packages - TOOLS
    return allowed


ALLOWED = allowed_imports()

MODULE_LINES = 400
FUNCTION_LINES = 70

BENCH = ROOT / "benchmarks"
MODULES = sorted([*SOURCE.rglob("*.py"), *(BENCH / "tidelog_bench").rglob("*.py")])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


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
    """`tidelog.storage.local` for src/tidelog/storage/local.py."""
    root = SOURCE if path.is_relative_to(SOURCE) else BENCH
    return ".".join(path.relative_to(root).with_suffix("").parts)


def package_of(module: str) -> str:
    """The package that a row of the table names."""
    first, *rest = module.split(".")
    return rest[0] if first == LIBRARY else first


@cache
def imports(path: Path) -> list[str]:
    """Modules of this project that a module imports, wherever in its text."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == LIBRARY or parts[0] in TOOLS:
                found.append(_existing(name))
    return found


@cache
def _existing(name: str) -> str:
    """The module that a dotted name is, or lies in."""
    parts = name.split(".")
    while parts:
        base = (BENCH if parts[0] in TOOLS else SOURCE).joinpath(*parts)
        if base.with_suffix(".py").exists():
            return ".".join(parts)
        if (base / "__init__.py").exists():
            return ".".join([*parts, "__init__"])
        parts = parts[:-1]
    raise AssertionError("no such module")


def test_every_package_stands_in_the_table_and_nothing_else() -> None:
    assert {package_of(name_of(path)) for path in MODULES} == set(ALLOWED)


def test_a_module_imports_what_the_table_allows() -> None:
    wrong = [
        f"{name_of(path)} imports {target}"
        for path in MODULES
        for target in imports(path)
        if package_of(target) not in ALLOWED[(own := package_of(name_of(path)))] | {own}
    ]
    assert wrong == []


@pytest.mark.parametrize("room", SPACIOUS)
def test_a_room_has_few_loose_files(room: str) -> None:
    root = BENCH if room in TOOLS else SOURCE
    loose = {path.name for path in (root / room).glob("*.py")} - {"__init__.py", "__main__.py"}
    assert len(loose) <= LOOSE_FILES, sorted(loose)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): set(imports(path)) - {name_of(path)} for path in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


WALKED = re.compile(
    r"^ +(native/ [a-z]+|[a-z_]+(?:/[a-z_]*)*) {1,}(?:([A-Za-z_.]+) {2,})?", re.MULTILINE
)
NATIVE = ROOT / "native/spark-state-store/src/main/scala/tidelog/spark"


def test_the_walks_pass_rooms_and_functions_that_there_are() -> None:
    """A line of a walk has a module or folder, maybe a function of it, and what happens there."""
    walks = (ROOT / "ARCHITECTURE.md").read_text().partition("## Walks")[2].partition("## Spark")[0]
    blocks = re.findall(r"```\n(.*?)```", walks, re.DOTALL)
    assert len(blocks) == 6
    for room, function in WALKED.findall("".join(blocks)):
        if room.startswith("native/"):
            assert (NATIVE / room.removeprefix("native/ ")).is_dir(), room
            continue
        path = ROOT / "src" / "tidelog" / room
        module = path.with_suffix(".py")
        assert module.is_file() or path.is_dir(), room
        if function:
            name = function.rpartition(".")[2]
            sources = [module] if module.is_file() else sorted(path.rglob("*.py"))
            found = any(re.search(rf"(def|class) {name}\b", file.read_text()) for file in sources)
            assert found or "." in function, (room, function)


def test_modules_and_functions_stay_small() -> None:
    modules = [path for path in MODULES if path.read_text().count("\n") > MODULE_LINES]
    functions = [
        f"{name_of(path)}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]
    assert (modules, functions) == ([], [])


def test_clocks_chance_and_threads_come_from_effects() -> None:
    used = {name_of(path): set(banned(tree_of(path))) for path in MODULES}
    del used["tidelog.effects"]
    assert {name: found for name, found in used.items() if found} == {}


def banned(tree: ast.Module) -> Iterator[str]:
    """What a module takes from the outside behind the back of `tidelog.effects`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if node.attr in BANNED.get(owner, ()):
                yield f"{owner}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module in BANNED:
            for alias in node.names:
                if alias.name in BANNED[node.module]:
                    yield f"{node.module}.{alias.name}"


def test_every_module_with_code_says_what_it_holds() -> None:
    trees = {name_of(path): tree_of(path) for path in MODULES}
    assert [n for n, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_a_package_says_that_it_is_internal_unless_programs_import_it() -> None:
    says_so = {
        path.parent.name: (ast.get_docstring(tree_of(path)) or "").startswith("Internal: ")
        for path in SOURCE.glob("tidelog/*/__init__.py")
    }
    assert {name for name, internal in says_so.items() if not internal} == PUBLIC


LAZY = {"map", "filter", "reduce", "starmap", "filterfalse", "takewhile", "dropwhile"}
"""They take a StopIteration of their function for the end of what they iterate over."""
CALLED_SAFELY = "tidelog.runtime.user_code"


def test_no_function_of_a_user_is_given_to_what_a_stop_iteration_ends() -> None:
    """`map_all` and `each` of `user_code` call one for every record, and fail where it does."""
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if name_of(path).startswith("tidelog.") and name_of(path) != CALLED_SAFELY
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in LAZY
        and node.args
        and last_name(node.args[0]) in users_functions()
        and not within_strict_zip(tree_of(path), node)
    ]
    assert wrong == []


def last_name(node: ast.expr) -> str:
    """`value_of` for `value_of` and for `self._value_of`."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.lstrip("_")


def within_strict_zip(tree: ast.Module, call: ast.Call) -> bool:
    """What ends early is missed there."""
    return any(
        isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "zip"
        and call in node.args
        and any(keyword.arg == "strict" for keyword in node.keywords)
        for node in ast.walk(tree)
    )


@cache
def users_functions() -> set[str]:
    """The names of functions that jobs, sources and sinks are given."""
    given = [SOURCE / "tidelog/runtime/graph.py", *SOURCE.glob("tidelog/connectors/**/*.py")]
    return {
        argument.arg
        for path in given
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        and (node.name == "__init__" or path.name == "graph.py")
        for argument in [*node.args.args, *node.args.kwonlyargs]
        if argument.annotation is not None and "Callable" in ast.unparse(argument.annotation)
    }
