"""Published figures are facts with an address."""

from urllib.parse import urlparse

from tidelog_bench.report.published import every, published


def test_each_figure_says_what_where_and_both_values_or_the_change() -> None:
    assert every()
    for figure in every():
        assert figure.what
        assert figure.source.setup
        assert urlparse(figure.source.url).scheme in ("http", "https")
        both = figure.off is not None and figure.on is not None
        assert both != (figure.change is not None)
        assert (figure.off is None) == (figure.on is None)


def test_figures_belong_beside_one_experiment() -> None:
    found = {figure.what: (figure.off, figure.on) for figure in published("checkpoint-count")}
    assert found == {"value state, checkpoints completed": ("10,023", "108,649")}
    assert published("no such experiment") == []
