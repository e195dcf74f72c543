"""Errors as users meet them."""

import pickle

from tidelog.errors import FencedError


def test_an_error_crosses_a_process_border_whole() -> None:
    error = FencedError(
        "generation 3", expected="to run", found="another", action="stop", retry_safe=False
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is FencedError and vars(copy) == vars(error) and str(copy) == str(error)
