"""Each worker of a run begins with tests that take long."""

from tests.order import dealt


def test_each_equal_part_of_the_list_begins_with_long_tests() -> None:
    order = dealt(["ab", "c", "d"], "1234567", workers=3)
    assert "".join(order) == "ab1" + "c234" + "d567"


def test_more_groups_than_workers_follow_one_another() -> None:
    assert "".join(dealt(["ab", "c", "d"], "1234", workers=2)) == "abd1" + "c234"


def test_a_group_that_is_longer_than_a_part_loses_no_test() -> None:
    assert "".join(dealt(["abcdefg", "h"], "1", workers=2)) == "abcdefg" + "h1"
    assert "".join(dealt(["", ""], "12", workers=4)) == "12"
