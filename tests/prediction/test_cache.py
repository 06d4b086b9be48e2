"""Values computed once a profile, on several cores, with one BLAS thread."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from time import sleep

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from advisor.errors import InvalidInput
from advisor.prediction import cache as parallel
from advisor.prediction.cache import (
    answer_all,
    cached_by_profiles,
    in_processes,
    one_thread,
    start_answers,
)
from tests.synthetic import profile


def counted(answer):
    """`answer` as computed once a profile, and the list of calls that it makes."""
    calls = []

    @cached_by_profiles
    def once(one, share=1.0):
        calls.append((one.name, share))
        return answer(one, share)

    return once, calls


def test_each_question_of_a_profile_is_answered_once():
    answer, calls = counted(lambda one, share: f"{one.name} on {share}")
    one = profile()
    assert {answer(one, share) for share in (0.5, 0.5, 0.25)} == {
        f"{one.name} on 0.5",
        f"{one.name} on 0.25",
    }
    assert calls == [(one.name, 0.5), (one.name, 0.25)]


def test_profiles_that_come_and_go_never_get_each_others_answers(monkeypatch):
    monkeypatch.setattr(parallel, "_MOST", 100)
    host_s, _ = counted(lambda one, _: one.host_s)
    first = profile()
    for number in range(500):
        other = replace(first, host_s=1e-6 * (1 + number))
        assert host_s(other) == other.host_s
        del other  # its id may be the next one's


def test_threads_with_the_same_question_wait_for_one_answer():
    answer, calls = counted(lambda one, _: sleep(0.05) or one.name)
    one, both = profile(), Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: both.wait() < 2 and answer(one), "ab"))
    assert (found, len(calls)) == ([one.name] * 2, 1)


def test_a_computation_that_failed_is_tried_again():
    def fail_once(one, _):
        if len(calls) == 1:
            raise InvalidInput("not yet")
        return one.name

    answer, calls = counted(fail_once)
    one = profile()
    with pytest.raises(InvalidInput, match="not yet"):
        answer(one)
    assert answer(one) == one.name


@pytest.mark.parametrize("cores", [(0,), (0, 1), (0, 1, 2, 3)])
def test_answers_come_in_the_order_of_the_questions_on_any_cores(monkeypatch, cores):
    monkeypatch.setattr(parallel, "allowed_cores", lambda: cores)
    squares = lambda most: answer_all(lambda one: one**2, range(most))  # noqa: E731
    with start_answers(squares, range(20)) as answers:
        assert list(answers) == [[number**2 for number in range(most)] for most in range(20)]
    with pytest.raises(ZeroDivisionError):
        answer_all(lambda number: 1 / number, [1, 0])


def test_blas_has_one_thread_inside_the_block_and_as_many_as_before_after_it():
    def threads():
        loaded = [each for each in threadpool_info() if "numpy" in each["filepath"]]
        return [each["num_threads"] for each in loaded if each["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        with one_thread():
            with one_thread():
                assert threads() == [1]
            assert threads() == [1]
        assert threads() == [2]


class Interrupted:
    """Work whose process is interrupted, as by Ctrl-C, while it hands it out."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGINT)
        return sleep, (600,)


def test_an_interrupt_while_processes_start_is_not_lost():
    with (
        pytest.raises(KeyboardInterrupt),
        in_processes(str, [1], 1, sleep, (Interrupted(),)) as found,
    ):
        next(found)


def test_worker_processes_end_with_a_parent_that_is_killed():
    code = (
        "from time import sleep\n"
        "from advisor.prediction.cache import in_processes\n"
        "with in_processes(sleep, [600], 1, print, ('begun',)) as found:\n    next(found)\n"
    )
    at_once = os.environ | {"PYTHONUNBUFFERED": "1"}  # its processes inherit this, but not -u
    with subprocess.Popen(
        [sys.executable, "-c", code], env=at_once, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as started:
        assert started.stdout.readline() == b"begun\n"
        started.kill()
        assert started.stdout.read() == b""  # until nobody is left who could write to it
