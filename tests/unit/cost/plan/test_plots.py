"""Plots are drawn, with what they show named; without their libraries the error helps."""

import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.cost.plan.chart import Chart, Mark
from tidelog.cost.plan.plots import draw, save
from tidelog.errors import ConfigError

CHART = Chart(
    title="Cost and restore time: somewhere",
    currency="EUR",
    intervals_s=(10.0, 60.0, 600.0, 3_600.0),
    costs=(90.0, 40.0, 22.0, 20.0),
    restores_s=(5.0, 8.0, 30.0, 120.0),
    mark=Mark("recommended", 600.0, 22.0, 30.0),
    budget=25.0,
    restore_target_s=45.0,
)


def words(svg: Path) -> str:
    """All text of a drawing: matplotlib leaves it in comments beside the glyphs."""
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    root = ET.fromstring(svg.read_bytes(), parser)
    return " ".join(element.text or "" for element in root.iter())


def test_a_png_is_a_png_of_some_size(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.png"
    save(CHART, path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width > 1_000 and height > 600


def test_an_svg_names_both_curves_with_units_the_targets_and_the_point(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.svg"
    save(CHART, path)
    shown = words(path)
    for text in (
        "Cost and restore time: somewhere",
        "materialization interval",
        "cost, EUR a month",
        "restore time, seconds",
        "budget 25 EUR",
        "restore target 45s",
        "recommended: 10m",
        "22.00 EUR a month",
        "restore 30.0 s",
    ):
        assert text in shown


def test_a_plan_without_targets_or_point_is_drawn_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.svg"
    save(replace(CHART, mark=None, budget=None, restore_target_s=None), path)
    assert "budget" not in words(path)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.png or \.svg"):
        save(CHART, tmp_path / "plan.pdf")


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match="nowhere"):
        save(CHART, tmp_path / "nowhere" / "plan.png")


def test_a_chart_on_a_terminal_names_both_curves_and_the_point() -> None:
    pytest.importorskip("plotext")
    text = draw(CHART, 90)
    assert "cost, EUR a month (left)" in text
    assert "restore time, seconds (right)" in text
    assert "recommended: 10m" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 90


@pytest.mark.parametrize("library", ["matplotlib", "plotext"])
def test_a_missing_library_is_named_with_what_to_install(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as caught:
        if library == "matplotlib":
            save(CHART, tmp_path / "plan.png")
        else:
            draw(CHART, 90)
    assert "pip install 'tidelog[plots]'" in str(caught.value)
