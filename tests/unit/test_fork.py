"""What a fork leaves behind, while other threads make and drop what has a lock."""

import os
import threading

import pytest

from tidelog.fork import LockedObjects


class Guarded:
    """An object with a lock, and what becomes of it in a child."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_childs = False

    def is_free(self) -> bool:
        """Whether another thread gets the lock."""
        answers: list[bool] = []

        def take() -> None:
            answers.append(self.lock.acquire(timeout=5))
            if answers[0]:
                self.lock.release()

        other = threading.Thread(target=take)
        other.start()
        other.join()
        return answers == [True]


def become_childs(each: Guarded) -> None:
    each.is_childs = True


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_locks_are_free_on_both_sides_of_a_fork_during_which_objects_come_and_go() -> None:
    gone, stays, late = Guarded(), Guarded(), Guarded()
    first, more = [gone, stays], [late]
    del gone

    def meanwhile() -> None:  # registered first, so it is called last before the fork
        if more:
            objects.add(more[0])
            first[:1] = []

    os.register_at_fork(before=meanwhile)
    objects: LockedObjects[Guarded] = LockedObjects(lambda each: each.lock, become_childs)
    for each in first:
        objects.add(each)

    child = os.fork()
    if not child:
        os._exit(0 if stays.is_childs and stays.is_free() else 1)
    more.clear()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert stays.is_free() and late.is_free()
    assert not stays.is_childs
