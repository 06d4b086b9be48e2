"""Caches results by profile or mix, and computes them on several cores: in threads or processes."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import CDLL
from functools import cache, wraps
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy.linalg  # noqa: F401 - loads its BLAS, whose threads are set here

from advisor.files.reading import is_file
from advisor.hardware.machine import allowed_cores
from advisor.measure.launcher import die_with_parent
from advisor.workload.profile import Profile

# Fitting converts a profile to the host of each run, and evaluation fits to the same thousand runs
# many times.
_MOST = 8192

_Rest = ParamSpec("_Rest")
_Profiles = TypeVar("_Profiles", Profile, Sequence[Profile])
_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


def cached_by_profiles(
    function: Callable[Concatenate[_Profiles, _Rest], _Answer],
) -> Callable[Concatenate[_Profiles, _Rest], _Answer]:
    """Wrap a `function` of a profile, or of several in order; threads wait for each other.

    It is called once for each profile object and equal other arguments. The key is the object, not
    its value: hashing a trace takes as long as replaying it.
    """
    # It keeps the profiles too, so that no other object gets their ids.
    answers: dict[tuple[object, ...], tuple[Profile | Sequence[Profile], _Answer]] = {}
    running: dict[tuple[object, ...], Future[_Answer]] = {}

    @wraps(function)
    def cached(of: _Profiles, /, *args: _Rest.args, **named: _Rest.kwargs) -> _Answer:
        profiles = of if isinstance(of, Profile) else tuple(of)
        ids = id(profiles) if isinstance(profiles, Profile) else tuple(map(id, profiles))
        key = (ids, args, *named.items())
        if (entry := answers.get(key)) is not None:
            return entry[1]
        own: Future[_Answer] = Future()
        if (other := running.setdefault(key, own)) is not own:
            return other.result()  # another thread computes it
        try:
            if (entry := answers.get(key)) is None:  # else another thread just ended
                if len(answers) >= _MOST:
                    answers.clear()
                entry = answers[key] = (profiles, function(of, *args, **named))
            own.set_result(entry[1])
        except BaseException as error:
            own.set_exception(error)  # the next call tries again
        finally:
            del running[key]
        return own.result()

    return cached


@cache
def _workers(cores: int, name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, thread_name_prefix=name)


def answer_all(
    answer: Callable[[_Question], _Answer], questions: Sequence[_Question]
) -> list[_Answer]:
    """Return `answer` of each of `questions`, in order, in threads; it must not call `answer_all`.

    The calling thread computes the first: idle, it would only compete for the interpreter.
    """
    cores = len(allowed_cores())
    if min(cores, len(questions)) < 2:
        return [answer(each) for each in questions]
    others = [_workers(cores, "replay").submit(answer, each) for each in questions[1:]]
    with _cancelled(others):
        return [answer(questions[0]), *(each.result() for each in others)]


@contextmanager
def start_answers(
    answer: Callable[[_Question], _Answer], questions: Sequence[_Question]
) -> Iterator[Iterator[_Answer]]:
    """Start `answer_all`, and yield the answers, each as soon as it and those before are there.

    `answer` may call `answer_all` itself, but not `start_answers`. The end of the block cancels
    what did not start.
    """
    cores = len(allowed_cores())
    if cores < 2:
        yield map(answer, questions)
        return
    futures = [_workers(cores, "ahead").submit(answer, each) for each in questions]
    with _cancelled(futures):
        yield (each.result() for each in futures)


@contextmanager
def _cancelled(futures: Sequence[Future[_Answer]]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in futures:
            each.cancel()


_SetThreads = Callable[[int], None]


@cache
def _blas() -> tuple[Callable[[], int], _SetThreads] | None:
    """Return how to get and set the threads of numpy's OpenBLAS; None if it uses another BLAS."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split(maxsplit=5)[-1] for line in maps if "openblas" in line}
    # Wheels of scipy have a BLAS of their own.
    paths = sorted(filter(is_file, map(Path, loaded)), key=lambda path: "numpy" not in str(path))
    linked = CDLL(str(paths[0]) if paths else None)
    for name in ("scipy_openblas_{}64_", "openblas_{}64_", "openblas_{}"):
        if hasattr(linked, name.format("set_num_threads")):
            get, put = (linked[name.format(f"{verb}_num_threads")] for verb in ("get", "set"))
            return get, put
    return None


# Held by the first caller; while it is held, the setting is in force for later callers too.
_HELD = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit numpy's matrix products to one thread while the block runs.

    On a busy machine the threads of a small product wait for each other several times as long as
    they save on an idle one: advice for 8 jobs takes twice as long on two busy cores.
    """
    if (blas := _blas()) is None or not _HELD.acquire(blocking=False):
        yield
        return
    threads, set_threads = blas
    before = threads()
    try:
        set_threads(1)
        yield
    finally:
        set_threads(before)
        _HELD.release()


@contextmanager
def in_processes(
    work: Callable[[_Question], _Answer],
    parts: Iterable[_Question],
    processes: int,
    begin: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
) -> Iterator[Iterator[_Answer]]:
    """Yield `work` of each of `parts`, in order, computed in new processes that end with this one.

    Processes first call `begin` with `arguments`. Only this process handles an interrupt and ends
    the others, which would print tracebacks.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (begin, *arguments))
    try:
        # Tasks start processes, which inherit this and keep it; no interrupt is lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            results = pool.map(work, parts)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield results
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., None] | None, *arguments: Any) -> None:
    """Begin a process that ends with its parent, even if that is killed."""
    from multiprocessing import parent_process

    die_with_parent()
    parent = parent_process()
    if parent is not None and parent.pid != os.getppid():
        os._exit(1)  # it died before that took effect
    if begin is not None:
        begin(*arguments)
