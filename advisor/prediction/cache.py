"""Caches results by profile or by mix, since every mix with a profile needs them again."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from advisor.hardware.host_cores import allowed_cores
from advisor.measure.pdeathsig import die_with_parent
from advisor.workload.profile import Profile

# Fitting converts a profile to the host of each run, and evaluation fits to the same thousand runs
# many times.
_MOST = 8192

_Rest = ParamSpec("_Rest")
_Found = TypeVar("_Found")


def once_a_profile(
    function: Callable[Concatenate[Profile, _Rest], _Found],
) -> Callable[Concatenate[Profile, _Rest], _Found]:
    """`function`, called once for each profile object and equal other arguments.

    The key is the object, not its value: hashing a trace takes as long as replaying it.
    """

    def of_one(profiles: Sequence[Profile], /, *args: _Rest.args, **named: _Rest.kwargs) -> _Found:
        return function(profiles[0], *args, **named)

    of_mix = once_a_mix(of_one)

    @wraps(function)
    def remembered(profile: Profile, /, *args: _Rest.args, **named: _Rest.kwargs) -> _Found:
        return of_mix((profile,), *args, **named)

    return remembered


def once_a_mix(
    function: Callable[Concatenate[Sequence[Profile], _Rest], _Found],
) -> Callable[Concatenate[Sequence[Profile], _Rest], _Found]:
    """As `once_a_profile`, for several profiles in order; threads wait for each other."""
    # It keeps the profiles too, so that no other object gets their ids.
    known: dict[tuple[object, ...], tuple[Sequence[Profile], _Found]] = {}
    sought: dict[tuple[object, ...], Future[_Found]] = {}

    @wraps(function)
    def remembered(
        profiles: Sequence[Profile], /, *args: _Rest.args, **named: _Rest.kwargs
    ) -> _Found:
        key = (tuple(map(id, profiles)), args, *named.items())
        if (found := known.get(key)) is not None:
            return found[1]
        mine: Future[_Found] = Future()
        if (others := sought.setdefault(key, mine)) is not mine:
            return others.result()  # another thread is at it
        try:
            if (found := known.get(key)) is None:  # else one was, until just now
                if len(known) >= _MOST:
                    known.clear()
                found = known[key] = (tuple(profiles), function(profiles, *args, **named))
            mine.set_result(found[1])
        except BaseException as error:
            mine.set_exception(error)  # asked again, it is tried again
        finally:
            del sought[key]
        return mine.result()

    return remembered


_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


@cache
def _workers(cores: int, what: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, thread_name_prefix=what)


def at_once(answer: Callable[[_Asked], _Answer], asked: Sequence[_Asked]) -> list[_Answer]:
    """`answer` of each of `asked`, in order, in threads; `answer` must not call `at_once`.

    The calling thread computes the first: idle, it would only compete for the interpreter.
    """
    cores = len(allowed_cores())
    if min(cores, len(asked)) < 2:
        return [answer(each) for each in asked]
    others = _workers(cores, "replay").map(answer, asked[1:])  # they have begun
    return [answer(asked[0]), *others]


def begun(
    answer: Callable[[_Asked], _Answer], asked: Sequence[_Asked]
) -> Callable[[], list[_Answer]]:
    """As `at_once`, but returns at once a function that waits for the answers.

    `answer` may call `at_once` itself, but not `begun`.
    """
    cores = len(allowed_cores())
    if cores < 2:
        return lambda: [answer(each) for each in asked]
    coming = [_workers(cores, "ahead").submit(answer, each) for each in asked]
    return lambda: [each.result() for each in coming]


@cache
def _pools() -> Any:
    """The thread pools of the loaded libraries; finding them takes longer than setting them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


# Held by the first caller; while it is held, the setting is in force for later callers too.
_HELD = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit numpy's matrix products to one thread while the block runs.

    On a busy machine the threads of a small product wait for each other several times as long as
    they save on an idle one. Entering the block takes as long as a small product, so use one block
    around many products.
    """
    if not _HELD.acquire(blocking=False):
        yield
        return
    try:
        with _pools().limit(limits=1, user_api="blas"):
            yield
    finally:
        _HELD.release()


def fitting_in_one_thread() -> AbstractContextManager[object]:
    """From this call on, until its end as a context, no library takes more than one thread.

    For hundreds of small systems: threads that wait for each other take up to 50 times longer.
    Threads of libraries are found only once these are there, and fitting needs scipy.
    """
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[object] = threadpool_limits(1)
    return limited


_Part = TypeVar("_Part")
_Done = TypeVar("_Done")


@contextmanager
def in_processes(
    work: Callable[[_Part], _Done],
    parts: Iterable[_Part],
    processes: int,
    begin: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
) -> Iterator[Iterator[_Done]]:
    """`work` on each of `parts`, in new processes, which end with this one.

    Only this process handles an interrupt and ends the others, which would print tracebacks.

    Args:
        work: A function of a module.
        parts: Taken one after another; each is sent to a process.
        processes: Number of processes.
        begin: Called first in each process.
        arguments: Of `begin`.

    Yields:
        The result of each part, in order, as soon as it is ready.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (begin, *arguments))
    try:
        with _interrupts_later():  # tasks start processes, which inherit this and keep it
            found = pool.map(work, parts)
        yield found
    except BaseException:
        for each in active_children():
            each.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., None] | None, *arguments: Any) -> None:
    """Begin a process that ends with its parent: killed, that could not end it any more."""
    from multiprocessing import parent_process

    die_with_parent()
    parent = parent_process()
    if parent is not None and parent.pid != os.getppid():
        os._exit(1)  # it died before that took effect
    if begin is not None:
        begin(*arguments)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold back interrupts of this thread until the end of the block; none is lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
