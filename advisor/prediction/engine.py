"""Replays kernels event by event: loops that numba compiles once, and later processes only load.

Tenant ``i`` repeats the kernels ``starts[i] .. starts[i + 1]``. Other arrays have a column for each
tenant, but `kernels` one for each kernel. Times are in seconds. Steps are counted with the part of
the last one that was done, after a warm-up, so that a short replay is not biased by its ends. Rows
of `log` are filled with tenant, kernel, start and end of what runs, in the order of the ends, up to
its length; shape (rows, 4).

If a tenant's kernels are those of a round of several steps, what all tenants do is counted over
whole rounds of this `pivot`: a rollout and its updates disturb the others differently. -1 for none.

The functions without types are in numba's subset of Python. Importing numba takes longer than most
replays, so a process that finds the object file loads it by llvmlite alone.
"""

import logging
import os
import stat
from contextlib import suppress
from ctypes import CFUNCTYPE, byref, c_double, c_int32, c_int64, c_void_p
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from advisor.errors import AdvisorError
from advisor.files.reading import cache_folder
from advisor.files.writing import write_whole
from advisor.prediction.trace import Floats

# The policies by which tenants share a GPU.
SIDE_BY_SIDE, TIME_SLICES = 0, 1

# Rows of `kernels`, shape (7, kernels).
LAUNCH, DURATION, DEMAND, HELD, DRAIN, WAIT, TURN = 0, 1, 2, 3, 4, 5, 6
# Rows of `paces`, shape (4, tenants): the last is 1 for a round of several steps, else 0.
HOST, GAP, LEAD, ROUND = 0, 1, 2, 3
# Rows of `state`, shape (4, tenants).
LEFT, READY, HOST_START, STEPS = 0, 1, 2, 3
# Entries of `bounds`: seconds where counting begins and ends, and rounds of the pivot until then.
BEGAN, ENDED, ROUNDS = 0, 1, 2

NEVER = 1e30
# A literal 0 is of another type than what it becomes, for which numba would compile again.
ZERO = np.int64(0)
DUST = 1e-12
WARM_UP = 0.25  # share of the replay after which counting begins, without a pivot
WHOLE_ROUNDS = 2  # least number that is counted of the pivot, after the one that it begins with
# Share of its block slots that a kernel has, in the mean, while its last wave drains: of 0.5, 0.7,
# 0.8, 0.9 and 1 what fits 626 pairs of kernels on an H200 best.
STILL_HELD = 0.9


def begin(tape, at, state):
    """Let tenants start at different points of their steps, as real ones do."""
    starts, kernels, _ = tape
    for i in range(len(at)):
        at[i] = starts[i] + (starts[i + 1] - starts[i]) * i // len(at)
        state[LEFT, i], state[HOST_START, i] = kernels[DURATION, at[i]], -kernels[LAUNCH, at[i]]


def advance(i, now, tape, at, state):
    """Point tenant `i`, which has finished its kernel, at the next one."""
    starts, kernels, paces = tape
    # A host that waited for it is no further than where it waits.
    state[HOST_START, i] = max(state[HOST_START, i], now - kernels[WAIT, at[i]])
    at[i] += 1
    if at[i] == starts[i + 1]:
        at[i] = starts[i]
        state[STEPS, i] += 1
        # The host went on, as far ahead as the launch queue allows.
        next_start = state[HOST_START, i] + paces[HOST, i]
        state[HOST_START, i] = max(next_start, now - paces[LEAD, i])
    state[LEFT, i] = kernels[DURATION, at[i]]
    launched = state[HOST_START, i] + kernels[LAUNCH, at[i]]
    state[READY, i] = max(now + paces[GAP, i], launched)


def count(tape, at, state, done):
    """Fill `done` with steps until now; an unfinished step counts by its share of kernel time.

    A round counts by its share of the host's time: a rollout has few kernels and takes long.
    """
    starts, kernels, paces = tape
    for i in range(len(done)):
        if paces[ROUND, i] > 0:
            done[i] = state[STEPS, i] + kernels[LAUNCH, at[i]] / paces[HOST, i]
            continue
        before, whole = 0.0, 0.0
        for kernel in range(starts[i], starts[i + 1]):
            whole += kernels[DURATION, kernel]
            if kernel <= at[i]:
                before += kernels[DURATION, kernel]
        done[i] = state[STEPS, i] + (before - state[LEFT, i]) / whole


def mark(due, pivot, now, tape, at, state, tally):
    """Begin to count once it is `due`; move begin, then end of counting to rounds' ends of `pivot`.

    `bounds` also holds the rounds of `pivot` that were complete when this was called before.
    """
    done, bounds = tally
    if bounds[BEGAN] < 0:
        if due or pivot >= 0:
            bounds[BEGAN] = now
            count(tape, at, state, done[BEGAN])
    elif pivot >= 0 and state[STEPS, pivot] > bounds[ROUNDS]:
        bound = ENDED if bounds[ROUNDS] > 0 else BEGAN
        bounds[bound], bounds[ROUNDS] = now, state[STEPS, pivot]
        count(tape, at, state, done[bound])


def goes_on(pivot, now, horizon_s, bounds):
    """Return whether there is more to replay."""
    return now < horizon_s or (pivot >= 0 and bounds[ROUNDS] <= WHOLE_ROUNDS)


def counted_s(now, tape, at, state, tally):
    """Return the seconds of counting, which ends now if it did not end with a round."""
    done, bounds = tally
    if bounds[ENDED] < 0:
        bounds[ENDED] = now
        count(tape, at, state, done[ENDED])
    return bounds[ENDED] - bounds[BEGAN]


def note(log, row, i, kernel, start, end):
    """Log that a kernel ran; return the next free row."""
    if row == len(log):
        return row
    log[row, 0], log[row, 1], log[row, 2], log[row, 3] = i, kernel, start, end
    return row + 1


def _share_out(left, demand, held, drain, ceded, queue, active, rate):
    """Start blocks along the queue: fill `rate`; return seconds until that changes, and the load.

    All run `load` times slower than `rate`, because together they use that many GPUs.
    """
    waiting = 0.0
    for place in range(active):
        waiting += held[queue[place]]
    free, used, pause = 1.0, 0.0, NEVER
    for place in range(active):
        i = queue[place]
        most = held[i]
        waiting -= most
        running = max(0.0, min(most, free - ceded * min(1.0, waiting)))
        pace = 1.0 if running == most else running / most
        until, still = left[i] - drain[i], 1.0
        if until <= DUST:
            until, still = left[i], STILL_HELD
        elif place == active - 1:  # no other waits for its last blocks to start
            until = left[i]
        free -= still * running
        used += still * pace * demand[i]
        rate[i] = pace
        if until < pause * pace:
            pause = until / pace
    load = max(1.0, used)
    return pause * load, load


def _wake(now, ready, queue, active, asleep, sleeping):
    """Append the ready tenants to the queue; return both lengths and when the next is ready."""
    next_ready, still = NEVER, 0
    for place in range(sleeping):
        i = asleep[place]
        if ready[i] <= now:
            queue[active] = i
            active += 1
        else:
            asleep[still] = i
            still += 1
            next_ready = min(next_ready, ready[i])
    return active, still, next_ready


def _side_by_side(tape, ceded, most, pivot, log, at, state, queues, current, tally):
    """Replay kernels side by side; return the seconds between the two rows of `done`.

    `queues` holds the running tenants, in order, and the sleeping ones; `current` the demand, the
    slots and the drain of each tenant's kernel, its rate, and since when it runs.
    """
    starts, kernels, _ = tape
    horizon_s, max_events = most
    left, ready = state[LEFT], state[READY]
    queue, asleep = queues[0], queues[1]
    demand, held, drain, rate, since = current[0], current[1], current[2], current[3], current[4]
    begin(tape, at, state)
    for i in range(len(at)):
        demand[i], held[i] = kernels[DEMAND, at[i]], kernels[HELD, at[i]]
        drain[i], since[i], asleep[i] = kernels[DRAIN, at[i]], NEVER, i
    now, events, active, sleeping, row = 0.0, 0, ZERO, len(at), ZERO
    while goes_on(pivot, now, horizon_s, tally[1]) and events < max_events:
        due = now > WARM_UP * horizon_s or events > WARM_UP * max_events
        mark(due, pivot, now, tape, at, state, tally)
        active, sleeping, next_ready = _wake(now, ready, queue, active, asleep, sleeping)
        pause, load = _share_out(left, demand, held, drain, ceded, queue, active, rate)
        pause = min(pause, next_ready - now)
        done_s = pause / load
        running = 0
        for place in range(active):
            i = queue[place]
            if rate[i] > DUST and since[i] > now:
                since[i] = now
            left[i] -= rate[i] * done_s
            if left[i] > DUST:
                queue[running] = i
                running += 1
            else:
                row = note(log, row, i, at[i] - starts[i], since[i], now + pause)
                since[i] = NEVER
                advance(i, now + pause, tape, at, state)
                demand[i], held[i] = kernels[DEMAND, at[i]], kernels[HELD, at[i]]
                drain[i] = kernels[DRAIN, at[i]]
                asleep[sleeping] = i
                sleeping += 1
        now += pause
        events += active - running
        active = running
    return counted_s(now, tape, at, state, tally)


def _next_owner(owner, now, state):
    """Return the next tenant in turn that can run now, or else the one that can run first."""
    tenants = state.shape[1]
    soonest = (owner + 1) % tenants
    for step in range(1, tenants):
        i = (owner + step) % tenants
        if state[READY, i] <= now:
            return i
        if state[READY, i] < state[READY, soonest]:
            soonest = i
    return soonest


def _past_copies(i, row, tape, log, at, state):
    """Let tenant `i` run all that needs no turn; return the next free row of `log`."""
    starts, kernels, _ = tape
    while kernels[TURN, at[i]] == 0.0:
        end = state[READY, i] + state[LEFT, i]
        row = note(log, row, i, at[i] - starts[i], state[READY, i], end)
        advance(i, end, tape, at, state)
    return row


def _in_turn(tape, slicing, most, pivot, log, at, state, tally):
    """Replay time slices; return the seconds between the two rows of `done`."""
    starts, kernels, paces = tape
    horizon_s, max_events = most
    begin(tape, at, state)
    slice_s, switch_s = slicing[0], slicing[1]
    tenants = len(at)
    now, events, owner, slice_end, row = 0.0, 0, ZERO, slice_s, ZERO
    for i in range(tenants):
        row = _past_copies(i, row, tape, log, at, state)
    while goes_on(pivot, now, horizon_s, tally[1]) and events < max_events:
        due = now > WARM_UP * horizon_s or events > WARM_UP * max_events
        mark(due, pivot, now, tape, at, state, tally)
        events += 1
        waiting = NEVER  # when the first of the others can run
        for i in range(tenants):
            if i != owner:
                waiting = min(waiting, state[READY, i])
        start = max(now, state[READY, owner])
        # No host launches more after a wait as soon as the GPU finds that there is nothing left.
        before = at[owner] - 1 if at[owner] > starts[owner] else starts[owner + 1] - 1
        waited = kernels[WAIT, before] < NEVER
        gap_s = 0.0 if waited else paces[GAP, owner] + DUST  # in which the owner has not finished
        idle = start - now > gap_s and waiting < start
        evicted = max(now if idle else max(now, slice_end), waiting)
        if start + state[LEFT, owner] <= evicted:
            now = start + state[LEFT, owner]
            row = note(log, row, owner, at[owner] - starts[owner], start, now)
            advance(owner, now, tape, at, state)
            row = _past_copies(owner, row, tape, log, at, state)
        else:
            if evicted > start:
                row = note(log, row, owner, at[owner] - starts[owner], start, evicted)
            state[LEFT, owner] -= max(0.0, evicted - start)
            owner = _next_owner(owner, evicted, state)
            now = evicted + switch_s
            slice_end = now + slice_s
    return counted_s(now, tape, at, state, tally)


def _replay(
    policy,
    max_events,
    pivot,
    horizon_s,
    starts,
    at,
    queues,
    constants,
    bounds,
    kernels,
    paces,
    log,
    state,
    current,
    done,
):
    tape, most, tally = (starts, kernels, paces), (horizon_s, max_events), (done, bounds)
    if policy == TIME_SLICES:
        return _in_turn(tape, constants, most, pivot, log, at, state, tally)
    return _side_by_side(tape, constants[0], most, pivot, log, at, state, queues, current, tally)


_LOOPS = (
    begin,
    advance,
    count,
    mark,
    goes_on,
    counted_s,
    note,
    _share_out,
    _wake,
    _side_by_side,
    _next_owner,
    _past_copies,
    _in_turn,
    _replay,
)
# Arguments of `_replay`: numbers, then arrays by type and dimensions.
_NUMBERS = (c_int64, c_int64, c_int64, c_double)
_INTEGERS, _INDICES, _FLOATS = np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.float64)
_ARRAYS = (
    (_INTEGERS, 1),
    (_INTEGERS, 1),
    (_INDICES, 2),
    *[(_FLOATS, 1)] * 2,
    *[(_FLOATS, 2)] * 6,
)
_LEAST_STEPS = 1e-12

_LOADING = Lock()
_LOG = logging.getLogger(__name__)


def replay(
    policy: int,
    columns: tuple[Any, Floats, Floats],
    constants: tuple[float, ...],
    horizon_s: float,
    max_events: int,
    pivot: int,
    log: Floats,
) -> Floats:
    """Return the seconds in which each tenant repeats its kernels once, shape (tenants,).

    Args:
        policy: `SIDE_BY_SIDE`, where blocks start in the order in which their kernels became ready,
            where slots for them are free; in the last `DRAIN` seconds of a kernel all its blocks
            have started. `TIME_SLICES`, where one tenant owns the GPU at a time.
        columns: `starts`, `kernels` and `paces`.
        constants: The share of free slots that a kernel leaves to those after it; for time slices
            the seconds of a slice and of a change.
        horizon_s: Seconds to replay, if they hold enough rounds of `pivot`.
        max_events: Most events to replay.
        pivot: As above.
        log: Filled as above.
    """
    starts, kernels, paces = columns
    tenants = len(starts) - 1
    done = np.zeros((2, tenants))
    arrays = (
        starts,
        np.zeros(tenants, _INTEGERS),
        np.zeros((2, tenants), _INDICES),
        np.array(constants, _FLOATS),
        np.array([-1.0, -1.0, 0.0]),
        kernels,
        paces,
        log,
        np.zeros((4, tenants)),
        np.zeros((5, tenants)),
        done,
    )
    arguments = [policy, max_events, pivot, horizon_s]
    for (dtype, dimensions), array in zip(_ARRAYS, arrays, strict=True):
        kind = array.dtype, array.ndim, array.flags.c_contiguous
        assert kind == (dtype, dimensions, True), f"not compiled for {kind}"
        address = array.ctypes.data  # after the two owners of the memory, which numba does not need
        arguments += 0, 0, array.size, array.itemsize, address, *array.shape, *array.strides
    with _LOADING:
        function, *_ = load()
    elapsed_s, error = c_double(), c_void_p()
    failed = function(byref(elapsed_s), byref(error), *arguments)
    assert not failed, "a loop of replay has nothing to raise"
    return np.asarray(elapsed_s.value / np.maximum(done[1] - done[0], _LEAST_STEPS))


def is_compiled() -> bool:
    """Return whether machine code of the loops is loaded, or lies where `load` finds it."""
    with suppress(AdvisorError, OSError, RuntimeError):
        return load.cache_info().currsize > 0 or _read(_code_file()) is not None
    return False


def _code_file() -> Path:
    """The file of machine code, whose name contains everything that this depends on."""
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    inputs = version("numba"), version("llvmlite"), llvm.get_process_triple(), *processor
    key = sha256(Path(__file__).read_bytes() + "\n".join(inputs).encode()).hexdigest()[:32]
    return cache_folder("engine") / f"{key}.o"


@cache
def load() -> tuple[Any, ...]:
    """Return `_replay` as a C function, and what must live as long, from the file or for it."""
    code = None
    try:
        path = _code_file()
        if (code := _read(path)) is None:
            code = _machine_code()
            path.unlink(missing_ok=True)  # its mode would stay
            write_whole(path, sha256(code).digest() + code)
    except (AdvisorError, OSError, RuntimeError) as error:  # the last where there is no home
        remedy = "Set XDG_CACHE_HOME to a folder that you can write."
        _LOG.warning("each process compiles the replay engine: %s %s", error, remedy)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    builder = llvm.JITLibraryBuilder().add_object_img(code or _machine_code())
    compiler = llvm.create_lljit_compiler()
    library = builder.add_current_process().export_symbol("replay").link(compiler, "replay")
    parts_of_arrays = [c_int64] * sum(5 + 2 * dimensions for _, dimensions in _ARRAYS)
    function = CFUNCTYPE(c_int32, c_void_p, c_void_p, *_NUMBERS, *parts_of_arrays)
    return function(library["replay"]), library, compiler


def _read(path: Path) -> bytes | None:
    """Return the code in `path`; None if it is missing or damaged, or others could write it."""
    try:
        with path.open("rb") as file:
            status, content = os.fstat(file.fileno()), file.read()
    except OSError:
        return None
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    checksum, code = content[: sha256().digest_size], content[sha256().digest_size :]
    return code if sha256(code).digest() == checksum else None


def _machine_code():
    """Compile `_replay` to an object file that needs nothing of numba or Python.

    It is called as numba calls functions: first come the addresses of the result and of an error;
    0 is returned if there is none. An array is passed as numba's structure of it.
    """
    _LOG.warning("compiling the replay engine, once on this machine: about 5 s")
    from numba import config, njit, types

    numbers = [types.int64 if each is c_int64 else types.float64 for each in _NUMBERS]
    arrays = [types.Array(getattr(types, dtype.name), many, "C") for dtype, many in _ARRAYS]
    arguments = *numbers, *arrays
    scope = dict(globals())  # in which the loops call each other compiled
    # LLVM optimises the whole below: loops that numba optimised before are 7 % slower.
    level, config.OPT = config.OPT, type(config.OPT)(0)
    try:
        for loop in _LOOPS:
            # They make no array: counting references to them doubles the time.
            scope[loop.__name__] = njit(
                _nrt=False, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
            )(FunctionType(loop.__code__, scope))
        entry = scope["_replay"]
        entry.compile(arguments)
    finally:
        config.OPT = level
    module = llvm.parse_assembly(entry.inspect_llvm(arguments))
    for symbol in (*module.functions, *module.global_variables):
        if not symbol.is_declaration:
            symbol.linkage = "internal"
    own = module.get_function(entry.overloads[arguments].fndesc.llvm_func_name)
    own.linkage, own.name = "external", "replay"
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="small",
        jit=True,
    )
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)
