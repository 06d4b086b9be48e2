"""The compiled half of replay: loops over kernels, in numba's subset of Python.

Times are in seconds. Tenant ``i`` plays the kernels ``starts[i] .. starts[i + 1]`` again and
again; ``kernels`` has the rows `LAUNCH`, `DURATION`, `DEMAND`, shape (3, kernels), and ``paces``
the rows `HOST`, `GAP`, `LEAD`, shape (3, tenants). Steps are counted with the part of the last
one that was done, after a first stretch in which the tenants fall into their rhythm, so that a
short replay is not biased by its ends.
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
def _rates(now, kernels, at, state, limits, exponents, ceded, order, rate):
    """Share of its own pace at which each tenant's kernel runs at `now`, into `rate`."""
    active, waiting = 0, 0.0
    for i in range(len(at)):
        rate[i] = 0.0
        if state[_READY, i] <= now:
            place = active
            while place > 0 and state[_READY, order[place - 1]] > state[_READY, i]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = i
            active += 1
            waiting += min(kernels[DEMAND, at[i]], limits[i])
    free = 1.0
    for place in range(active):
        i = order[place]
        wanted = kernels[DEMAND, at[i]]
        waiting -= min(wanted, limits[i])
        share = min(wanted, limits[i], free - ceded * min(1.0, waiting))
        if wanted <= 0.0 or share == wanted:
            rate[i] = 1.0
        elif share > 1e-9:
            rate[i] = (share / wanted) ** exponents[i]
        free -= share


@_compiled
def mps(starts, kernels, paces, limits, exponents, ceded, horizon_s, max_events):
    """Seconds a step of each tenant when kernels run side by side, shape (tenants,).

    Of the SMs that become free while a kernel still has blocks to start, the share `ceded` goes
    to kernels that became ready after it.
    """
    at, state = _begin(starts, kernels)
    tenants = len(at)
    order, rate = np.zeros(tenants, dtype=np.int64), np.zeros(tenants)
    now, began, events = 0.0, -1.0, 0
    before = state[_STEPS].copy()
    while now < horizon_s and events < max_events:
        if began < 0 and (now > _WARM_UP * horizon_s or events > _WARM_UP * max_events):
            began, before = now, _done(starts, kernels, at, state)
        _rates(now, kernels, at, state, limits, exponents, ceded, order, rate)
        pause = _NEVER
        for i in range(tenants):
            if rate[i] > 0:
                pause = min(pause, state[_LEFT, i] / rate[i])
            elif state[_READY, i] > now:
                pause = min(pause, state[_READY, i] - now)
        now += pause
        for i in range(tenants):
            if rate[i] > 0:
                state[_LEFT, i] -= rate[i] * pause
                if state[_LEFT, i] <= _DUST:
                    events += 1
                    _advance(i, now, starts, kernels, paces, at, state)
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
def naive(starts, kernels, paces, slicing, horizon_s, max_events):
    """Seconds a step of each tenant when one owns the GPU at a time, shape (tenants,).

    `slicing` holds the seconds of a slice, of an idle owner's patience, and of a switch.
    """
    slice_s, patience_s, switch_s = slicing
    at, state = _begin(starts, kernels)
    tenants = len(at)
    now, began, events, owner, slice_end = 0.0, -1.0, 0, 0, slice_s
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
            _advance(owner, now, starts, kernels, paces, at, state)
        else:
            state[_LEFT, owner] -= max(0.0, evicted - begin)
            owner = _next_owner(owner, evicted, state)
            now = evicted if idle else evicted + switch_s
            slice_end = now + slice_s
    return _pace(now - began, _done(starts, kernels, at, state) - before)
