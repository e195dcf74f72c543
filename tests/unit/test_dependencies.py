"""Every library that an installation brings along is locked, and has a licence that fits."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "dependencies.md"
NOT_INSTALLED = {"peers"}
"""Extras of benchmarks alone."""

LICENCES: Final = {
    "0bsd": "0BSD",
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "bsd license": "BSD",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "cc0-1.0": "CC0-1.0",
    "mit": "MIT",
    "mit license": "MIT",
    "mit-0": "MIT-0",
    "mit-cmu": "MIT-CMU",
    "psf-2.0": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "zlib": "Zlib",
}
"""Licences that fit, by the names that metadata has for them."""
EXCEPTIONS: Final = {
    "certifi": "Mozilla Public License 2.0 (MPL 2.0)",
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
}
"""Libraries whose licence does not, and why they may be used stands on the page."""

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
LOCKED: Final = (ROOT / "locked.txt").read_text().replace("\\\n", "").splitlines()
"""A library per line: name and version, for which machines, checksums of its files."""


def direct() -> Iterator[tuple[str, Requirement]]:
    """Extra, empty for none, and requirement."""
    for text in PROJECT["dependencies"]:
        yield "", Requirement(text)
    for extra, texts in PROJECT["optional-dependencies"].items():
        if extra not in NOT_INSTALLED:
            for text in texts:
                yield extra, Requirement(text)


@cache
def installed() -> dict[str, Distribution]:
    """All libraries that come along here, by name."""
    found: dict[str, Distribution] = {}
    todo = [requirement for _, requirement in direct()]
    done: set[str] = set()
    while todo:
        requirement = todo.pop()
        if str(requirement) in done:
            continue
        done.add(str(requirement))
        library = distribution(requirement.name)
        found[canonicalize_name(requirement.name)] = library
        for text in library.requires or ():
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                todo.append(needed)
    return found


def licence(library: Distribution) -> str:
    """As the metadata says it: an SPDX expression, a classifier, or a short text."""
    metadata = library.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [c for c in metadata.get_all("Classifier") or () if c.startswith("License :: ")]
    if classifiers:
        return " OR ".join(c.rpartition(" :: ")[2] for c in classifiers)
    return (metadata.get("License") or "none").splitlines()[0]


def spdx(text: str) -> str | None:
    """The expression in the names of the page; None when a part of it does not fit."""
    parts = re.split(r"( AND | OR )", text)
    named = [LICENCES.get(part.strip().lower()) for part in parts[::2]]
    if None in named:
        return None
    joints = [*parts[1::2], ""]
    return "".join(f"{name}{joint}" for name, joint in zip(named, joints, strict=True))


def test_every_library_has_a_licence_that_fits() -> None:
    found = {name: licence(library) for name, library in installed().items()}
    assert len(found) > 50
    assert {
        n: text for n, text in found.items() if not spdx(text) and EXCEPTIONS.get(n) != text
    } == {}


def test_a_licence_that_does_not_fit_is_noticed() -> None:
    assert spdx("Apache-2.0 AND GPL-3.0-only") is None
    assert spdx("MIT License OR Apache Software License") == "MIT OR Apache-2.0"


def test_the_page_lists_what_is_declared_with_its_licence() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| library")
    ]
    named = {canonicalize_name(row[0]): (row[1], row[2]) for row in rows}
    extras: dict[str, list[str]] = {}
    for extra, requirement in direct():
        extras.setdefault(canonicalize_name(requirement.name), []).append(extra)
    licences = {name: licence(installed()[name]) for name in extras}
    assert named == {
        name: (", ".join(extras[name]), spdx(licences[name]) or licences[name]) for name in extras
    }
    assert all(row[3] for row in rows)


def test_the_lock_fits_what_is_declared() -> None:
    locked = {}
    for line in LOCKED:
        requirement = Requirement(line.partition("--hash")[0].strip())
        if requirement.marker is None or requirement.marker.evaluate():
            locked[canonicalize_name(requirement.name)] = requirement.specifier
    declared = [requirement for _, requirement in direct()]
    declared += [Requirement(text) for texts in GROUPS.values() for text in texts]
    for each in declared:
        [version] = locked.get(canonicalize_name(each.name), ())
        assert version.operator == "==", "just lock"
        assert each.specifier.contains(version.version, prereleases=True), "just lock"


def test_every_locked_library_has_a_checksum() -> None:
    assert len(LOCKED) > 100
    for line in LOCKED:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line


def test_ci_installs_what_is_locked() -> None:
    for page in (".ci/run", "CONTRIBUTING.md"):
        assert "--require-hashes -r locked.txt" in (ROOT / page).read_text()
