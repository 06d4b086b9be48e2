"""Answers come in the order of the questions, on however many cores."""

import os
import signal
import subprocess
import sys
from threading import Barrier, Thread
from time import sleep

import pytest
from threadpoolctl import threadpool_info

from advisor.prediction import parallel
from advisor.prediction.parallel import at_once, begun, in_processes, one_thread
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("cores", [(0,), (0, 1), (0, 1, 2, 3)])
def test_answers_stand_where_their_questions_stood(monkeypatch, cores):
    monkeypatch.setattr(parallel, "allowed_cores", lambda: cores)
    assert at_once(lambda number: number**2, range(50)) == [number**2 for number in range(50)]


def test_two_questions_are_answered_at_once_where_there_are_two_cores(monkeypatch):
    monkeypatch.setattr(parallel, "allowed_cores", lambda: (0, 1))
    both = Barrier(2, timeout=PATIENCE_S)  # lets nobody go on before both have come
    assert sorted(at_once(lambda _: both.wait(), "ab")) == [0, 1]


def test_what_goes_wrong_with_one_question_is_told(monkeypatch):
    monkeypatch.setattr(parallel, "allowed_cores", lambda: (0, 1))
    with pytest.raises(ZeroDivisionError):
        at_once(lambda number: 1 / number, [1, 0])


@pytest.mark.parametrize("cores", [(0,), (0, 1), (0, 1, 2, 3)])
def test_what_was_begun_is_answered_in_order_and_may_ask_at_once_itself(monkeypatch, cores):
    monkeypatch.setattr(parallel, "allowed_cores", lambda: cores)
    waited = begun(lambda most: at_once(lambda number: number**2, range(most)), range(20))
    assert waited() == [[number**2 for number in range(most)] for most in range(20)]


def test_who_began_something_goes_on_meanwhile(monkeypatch):
    monkeypatch.setattr(parallel, "allowed_cores", lambda: (0, 1))
    both = Barrier(2, timeout=PATIENCE_S)
    waited = begun(lambda _: both.wait(), "a")
    assert sorted([both.wait(), *waited()]) == [0, 1]


def blas():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_it_holds_inside_and_not_after_however_deep():
    before = blas()
    with one_thread():
        with one_thread():
            assert set(blas()) <= {1}
        assert set(blas()) <= {1}
    assert blas() == before


def test_others_ask_for_it_while_one_holds_it():
    before, both = blas(), Barrier(2, timeout=PATIENCE_S)

    def other():
        with one_thread():
            both.wait()

    with one_thread():
        thread = Thread(target=other)
        thread.start()
        both.wait()
        thread.join()
        assert set(blas()) <= {1}
    assert blas() == before


class StartedMeanwhile:
    """Work whose process is interrupted, as by Ctrl-C, while it hands it out."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGINT)
        return sleep, (600,)


def test_an_interrupt_while_processes_start_is_not_lost():
    with (
        pytest.raises(KeyboardInterrupt),
        in_processes(str, [1], 1, sleep, (StartedMeanwhile(),)) as found,
    ):
        next(found)


def test_processes_that_share_out_work_end_with_one_that_is_killed():
    code = (
        "from time import sleep\n"
        "from advisor.prediction.parallel import in_processes\n"
        "with in_processes(sleep, [600], 1, print, ('begun',)) as found:\n    next(found)\n"
    )
    at_once = os.environ | {"PYTHONUNBUFFERED": "1"}  # its processes inherit this, but not -u
    with subprocess.Popen(
        [sys.executable, "-c", code], env=at_once, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as started:
        assert started.stdout.readline() == b"begun\n"
        started.kill()
        assert started.stdout.read() == b""  # until nobody is left who could write to it
