"""The compiled half of replay: loops over kernels, in numba's subset of Python.

Times are in seconds. Tenant ``i`` plays the kernels ``starts[i] .. starts[i + 1]`` again and
again; ``kernels`` has the rows `LAUNCH`, `DURATION`, `DEMAND`, shape (3, kernels), and ``paces``
the rows `HOST`, `GAP`, `LEAD`, shape (3, tenants). Steps are counted with the part of the last
one that was done, after a first stretch in which the tenants fall into their rhythm, so that a
short replay is not biased by its ends. Rows of `log` are filled with tenant, kernel, start and end
of what runs, in the order of the ends, as far as they go; shape (rows, 4).
"""

import numpy as np
from numba import njit

LAUNCH, DURATION, DEMAND = 0, 1, 2
HOST, GAP, LEAD = 0, 1, 2
_LEFT, _READY, _HOST_START, _STEPS = 0, 1, 2, 3  # rows of a tenant's state

_WARM_UP = 0.25  # share of the replay after which counting begins
_NEVER = 1e30
_DUST = 1e-12


def _compiled(function):
    """`function` in machine code, kept on disk where numba finds a folder to write to."""
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # installed read-only and no home: compile in each process anew
        return njit(function)


@_compiled
def _begin(starts, kernels):
    """Tenants start at different points of their steps, as real ones do."""
    tenants = len(starts) - 1
    at = np.empty(tenants, dtype=np.int64)
    state = np.zeros((4, tenants))
    for i in range(tenants):
        at[i] = starts[i] + ((starts[i + 1] - starts[i]) * i) // tenants
        state[_LEFT, i] = kernels[DURATION, at[i]]
        state[_HOST_START, i] = -kernels[LAUNCH, at[i]]
    return at, state


@_compiled
def _advance(i, now, starts, kernels, paces, at, state):
    """Tenant `i` has finished its kernel: point it at the next one."""
    at[i] += 1
    if at[i] == starts[i + 1]:
        at[i] = starts[i]
        state[_STEPS, i] += 1
        # The host went on meanwhile, but the launch queue lets it run only so far ahead.
        next_start = state[_HOST_START, i] + paces[HOST, i]
        state[_HOST_START, i] = max(next_start, now - paces[LEAD, i])
    state[_LEFT, i] = kernels[DURATION, at[i]]
    launched = state[_HOST_START, i] + kernels[LAUNCH, at[i]]
    state[_READY, i] = max(now + paces[GAP, i], launched)


@_compiled
def _done(starts, kernels, at, state):
    """Steps done so far, the started one by the share of its kernels' time, shape (tenants,)."""
    done = state[_STEPS].copy()
    for i in range(len(done)):
        duration = kernels[DURATION, starts[i] : starts[i + 1]]
        before = duration[: at[i] - starts[i] + 1].sum() - state[_LEFT, i]
        done[i] += before / duration.sum()
    return done


@_compiled
def _pace(elapsed, done):
    """Seconds a step; endless where a tenant never got on."""
    return elapsed / np.maximum(done, _DUST)


@_compiled
def _note(log, row, i, kernel, start, end):
    """Write down that a kernel ran; returns the next free row."""
    if row == len(log):
        return row
    log[row, 0], log[row, 1], log[row, 2], log[row, 3] = i, kernel, start, end
    return row + 1


@_compiled
def _share_out(left, demand, limits, exponents, ceded, queue, active, rate):
    """Give the SMs out along the queue: fills `rate`, returns seconds until one is done."""
    waiting = 0.0
    for place in range(active):
        i = queue[place]
        waiting += min(demand[i], limits[i])
    free, pause = 1.0, _NEVER
    for place in range(active):
        i = queue[place]
        most = min(demand[i], limits[i])
        waiting -= most
        share = max(0.0, min(most, free - ceded * min(1.0, waiting)))
        free -= share
        pace = 1.0
        if share < demand[i]:
            pace = max(share, _DUST) / demand[i]
            if exponents[i] != 1.0:
                pace **= exponents[i]
        rate[i] = pace
        if left[i] < pause * pace:
            pause = left[i] / pace
    return pause


@_compiled
def _wake(now, ready, queue, active, asleep, sleeping):
    """Let those that are ready join the queue's end; returns both lengths and when one is next."""
    next_ready, still = _NEVER, 0
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


@_compiled
def mps(starts, kernels, paces, limits, exponents, ceded, horizon_s, max_events, log):
    """Seconds a step of each tenant when kernels run side by side, shape (tenants,).

    Of the SMs that become free while a kernel still has blocks to start, the share `ceded` goes
    to kernels that became ready after it.
    """
    at, state = _begin(starts, kernels)
    tenants = len(at)
    left, ready = state[_LEFT], state[_READY]
    queue, asleep = np.zeros(tenants, dtype=np.uint64), np.arange(tenants).astype(np.uint64)
    rate, demand = np.zeros(tenants), kernels[DEMAND, at]
    now, began, events, active, sleeping = 0.0, -1.0, 0, 0, tenants
    before, row, since = state[_STEPS].copy(), 0, np.full(tenants, _NEVER)
    while now < horizon_s and events < max_events:
        if began < 0 and (now > _WARM_UP * horizon_s or events > _WARM_UP * max_events):
            began, before = now, _done(starts, kernels, at, state)
        active, sleeping, next_ready = _wake(now, ready, queue, active, asleep, sleeping)
        pause = _share_out(left, demand, limits, exponents, ceded, queue, active, rate)
        pause = min(pause, next_ready - now)
        running = 0
        for place in range(active):
            i = queue[place]
            if rate[i] > _DUST and since[i] > now:
                since[i] = now
            left[i] -= rate[i] * pause
            if left[i] > _DUST:
                queue[running] = i
                running += 1
            else:
                row = _note(log, row, i, at[i] - starts[i], since[i], now + pause)
                since[i] = _NEVER
                _advance(i, now + pause, starts, kernels, paces, at, state)
                demand[i] = kernels[DEMAND, at[i]]
                asleep[sleeping] = i
                sleeping += 1
        now += pause
        events += active - running
        active = running
    return _pace(now - began, _done(starts, kernels, at, state) - before)


@_compiled
def _next_owner(owner, now, state):
    """The next tenant in turn that can run now, or else the one that can run first."""
    tenants = state.shape[1]
    soonest = (owner + 1) % tenants
    for step in range(1, tenants):
        i = (owner + step) % tenants
        if state[_READY, i] <= now:
            return i
        if state[_READY, i] < state[_READY, soonest]:
            soonest = i
    return soonest


@_compiled
def naive(starts, kernels, paces, slicing, horizon_s, max_events, log):
    """Seconds a step of each tenant when one owns the GPU at a time, shape (tenants,).

    `slicing` holds the seconds of a slice, of an idle owner's patience, and of a switch.
    """
    slice_s, patience_s, switch_s = slicing
    at, state = _begin(starts, kernels)
    tenants = len(at)
    now, began, events, owner, slice_end, row = 0.0, -1.0, 0, 0, slice_s, 0
    before = state[_STEPS].copy()
    while now < horizon_s and events < max_events:
        if began < 0 and (now > _WARM_UP * horizon_s or events > _WARM_UP * max_events):
            began, before = now, _done(starts, kernels, at, state)
        events += 1
        waiting = _NEVER  # when the first of the others can run
        for i in range(tenants):
            if i != owner:
                waiting = min(waiting, state[_READY, i])
        begin = max(now, state[_READY, owner])
        idle = begin - now > patience_s and waiting < begin
        evicted = max(now + patience_s if idle else max(now, slice_end), waiting)
        if begin + state[_LEFT, owner] <= evicted:
            now = begin + state[_LEFT, owner]
            row = _note(log, row, owner, at[owner] - starts[owner], begin, now)
            _advance(owner, now, starts, kernels, paces, at, state)
        else:
            if evicted > begin:
                row = _note(log, row, owner, at[owner] - starts[owner], begin, evicted)
            state[_LEFT, owner] -= max(0.0, evicted - begin)
            owner = _next_owner(owner, evicted, state)
            now = evicted if idle else evicted + switch_s
            slice_end = now + slice_s
    return _pace(now - began, _done(starts, kernels, at, state) - before)
