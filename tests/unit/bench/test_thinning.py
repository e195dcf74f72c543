"""Thinned curves keep their peaks and their ends' order."""

from tidelog_bench.measurement import downsampled


def test_few_points_stay_as_they_are() -> None:
    points = [(0.0, 3.0), (1.0, 2.0)]
    assert downsampled(points, 4) == points


def test_every_peak_and_dip_of_a_sawtooth_survives() -> None:
    points = [(float(at), float(at % 100)) for at in range(1_000)]
    few = downsampled(points, 40)
    assert len(few) <= 40
    assert {value for _, value in few} >= {0.0, 99.0}
    assert [value for _, value in few].count(99.0) == 10
    assert few == sorted(few)
    assert set(few) <= set(points)


def test_a_flat_curve_is_no_longer_than_asked() -> None:
    flat = downsampled([(float(at), 1.0) for at in range(999)], 300)
    assert len(flat) <= 300
    assert flat[0] == (0.0, 1.0)
