"""The types that public signatures mention, as the reader of the reference pages sees them."""

from collections.abc import Iterable, Iterator

import griffe

MADE_BY_SHAPE = {"Protocol", "TypedDict"}
"""A program that passes one of these writes its own, and need not name it."""


class Signatures:
    """The signatures of the public names of a library, and the classes in them."""

    def __init__(self, library: griffe.Object, public: set[str]) -> None:
        self._modules = library.modules_collection
        self._objects = [target(library[name]) for name in public]
        self._public = {described.canonical_path for described in self._objects}
        self._named = set[str]().union(*map(lineage, self._objects))

    def unnamed(self) -> set[str]:
        """Members with a class in their signature that no program can name.

        A class that a public signature hands out is not constructed by programs.
        """
        classes: dict[griffe.Object, set[str]] = {}
        for described in self._objects:
            for member in members(described):
                classes[member] = set(self._classes(annotations(member)))
        mentioned = set[str]().union(*classes.values())
        handed_out = set[str]().union(*(lineage(self._modules[path]) for path in mentioned))
        return {
            ".".join(member.canonical_path.split(".")[-2:])
            for member, paths in classes.items()
            if not all(map(self._has_name, paths))
            and not (member.name == "__init__" and member.parent.canonical_path in handed_out)
        }

    def _has_name(self, path: str) -> bool:
        described = self._modules[path]
        shapes = {str(base).partition("[")[0] for base in described.bases}
        is_public = path in self._named or lineage(described) & self._public
        return bool(is_public or shapes & MADE_BY_SHAPE)

    def _classes(self, annotations: Iterable[griffe.Expr | str | None]) -> Iterator[str]:
        """The library's classes in them, also those in the values of aliases."""
        for annotation in annotations:
            if not isinstance(annotation, griffe.Expr):
                continue
            for part in annotation.iterate(flat=True):
                path = part.canonical_path if isinstance(part, griffe.ExprName) else ""
                if not path.startswith("tidelog."):
                    continue
                described = target(self._modules[path])
                if isinstance(described, griffe.Class):
                    yield described.canonical_path
                elif isinstance(described, griffe.Attribute):
                    yield from self._classes([described.value])


def target(described: griffe.Object | griffe.Alias) -> griffe.Object:
    return described.final_target if isinstance(described, griffe.Alias) else described


def lineage(described: griffe.Object) -> set[str]:
    """An object and, if it is a class, its bases."""
    bases = described.mro() if isinstance(described, griffe.Class) else []
    return {base.canonical_path for base in [described, *bases]}


def members(described: griffe.Object) -> Iterator[griffe.Object]:
    """The public members of a class with its constructor, or what is no class itself."""
    if not isinstance(described, griffe.Class):
        yield described
        return
    for name, member in described.all_members.items():
        if not name.startswith("_") or name in ("__init__", "__enter__", "__aenter__"):
            yield target(member)


def annotations(member: griffe.Object) -> list[griffe.Expr | str | None]:
    if isinstance(member, griffe.Function):
        return [member.returns, *(parameter.annotation for parameter in member.parameters)]
    return [member.annotation] if isinstance(member, griffe.Attribute) else []
