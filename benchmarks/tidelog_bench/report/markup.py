"""HTML from nested calls.

Invariant: text is escaped unless it is `Markup` already, so no name or reason can break the page.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

_VOID: Final = frozenset({"br", "hr", "img", "link", "meta", "col"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
Attribute = str | int | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element; `class_` stands for class, other underscores for hyphens."""
    opening = f"<{name}{''.join(_attributes(attributes))}>"
    return Markup(opening if name in _VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after the other."""
    return Markup("".join(_text(child) for child in children))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child, quote=False)
    return "".join(_text(each) for each in child)


def _attributes(attributes: dict[str, Attribute]) -> Iterable[str]:
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        yield f" {key}" if value is True else f' {key}="{escape(str(value))}"'
