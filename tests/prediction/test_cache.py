"""What follows from one profile is worked out once, and never mistaken for another profile's."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from time import sleep

import pytest

from advisor.errors import InvalidInput
from advisor.prediction import cache
from advisor.prediction.cache import once_a_profile
from advisor.workload.profile import Profile
from tests.synthetic import profile


def test_it_is_asked_once_for_the_same_profile_and_question() -> None:
    asked = []

    @once_a_profile
    def answer(one: Profile, share: float) -> str:
        asked.append((one.name, share))
        return f"{one.name} on {share}"

    one = profile()
    assert [answer(one, 0.5), answer(one, 0.5), answer(one, 0.25)] == [
        f"{one.name} on 0.5", f"{one.name} on 0.5", f"{one.name} on 0.25"
    ]  # fmt: skip
    assert asked == [(one.name, 0.5), (one.name, 0.25)]


def test_profiles_that_come_and_go_never_get_each_others_answers() -> None:
    @once_a_profile
    def host_s(one: Profile) -> float | None:
        return one.host_s

    first = profile()
    for number in range(3 * cache._MOST):
        other = replace(first, host_s=1e-6 * (1 + number))
        assert host_s(other) == other.host_s
        del other  # its id may be the next one's


def test_threads_that_ask_the_same_at_once_wait_for_one_answer() -> None:
    asked, both_here = [], Barrier(2)

    @once_a_profile
    def answer(one: Profile) -> str:
        asked.append(one.name)
        sleep(0.05)  # the other thread asks meanwhile
        return one.name

    one = profile()

    def ask() -> str:
        both_here.wait()
        return answer(one)

    with ThreadPoolExecutor(2) as threads:
        found = [each.result() for each in [threads.submit(ask), threads.submit(ask)]]
    assert found == [one.name] * 2
    assert asked == [one.name]


def test_what_failed_is_tried_again() -> None:
    asked = []

    @once_a_profile
    def answer(one: Profile) -> str:
        asked.append(one.name)
        if len(asked) == 1:
            raise InvalidInput("not yet")
        return one.name

    one = profile()
    with pytest.raises(InvalidInput, match="not yet"):
        answer(one)
    assert answer(one) == one.name
