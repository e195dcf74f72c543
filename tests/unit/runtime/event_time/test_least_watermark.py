"""The least watermark of many splits is the minimum, whatever moves, ends or joins."""

import hypothesis.strategies as st
from hypothesis import given

from tests.property.profiles import looking
from tidelog.runtime.tasks.watermarks import LeastWatermark

MOVES = st.lists(
    st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 9)), st.booleans()),
    max_size=60,
)


@looking(100, deep=30)
@given(MOVES)
def test_it_is_the_minimum_of_what_counts(moves: list[tuple[str, int | None, bool]]) -> None:
    least, model = LeastWatermark(), dict[str, int | None]()
    for split, mark, drops in moves:
        if drops:
            least.drop(split)
            model.pop(split, None)
        else:
            least.put(split, mark)
            model[split] = mark
        assert len(least) == len(model)
        if model:
            known = [each for each in model.values() if each is not None]
            assert least.mark == (min(known) if len(known) == len(model) else None)
