"""The compiled replay of naive sharing: the driver passes the GPU on, one process at a time.

An owner keeps the GPU for a slice, or until nothing of its own is left to run while others wait.
Copies between host and GPU run outside of slices. Kernels that only pass time showed so.
"""

from numba import carray

from advisor.prediction.engine import WARM_UP, advance, count, lean, note
from advisor.prediction.engine_layout import DUST, GAP, LEFT, NEVER, READY, TURN, WAIT


@lean
def _next_owner(owner, now, state):
    """The next tenant in turn that can run now, or else the one that can run first."""
    tenants = state.shape[1]
    soonest = (owner + 1) % tenants
    for step in range(1, tenants):
        i = (owner + step) % tenants
        if state[READY, i] <= now:
            return i
        if state[READY, i] < state[READY, soonest]:
            soonest = i
    return soonest


@lean
def _past_copies(i, row, starts, kernels, paces, log, at, state):
    """Let tenant `i` do what comes next and needs no turn; returns the next free row of `log`."""
    while kernels[TURN, at[i]] == 0.0:
        end = state[READY, i] + state[LEFT, i]
        row = note(log, row, i, at[i] - starts[i], state[READY, i], end)
        advance(i, end, starts, kernels, paces, at, state)
    return row


@lean
def _waited(i, starts, kernels, at):
    """Whether the host of tenant `i` waited for the kernel before the one that comes next."""
    before = at[i] - 1 if at[i] > starts[i] else starts[i + 1] - 1
    return kernels[WAIT, before] < NEVER


@lean
def _in_turn(starts, kernels, paces, slicing, horizon_s, max_events, log, at, state, done):
    """The loop of `naive`: the seconds between its two counts, the rows of `done`."""
    slice_s, patience_s, switch_s = slicing
    tenants = len(at)
    now, began, events, owner, slice_end, row = 0.0, -1.0, 0, 0, slice_s, 0
    for i in range(tenants):
        row = _past_copies(i, row, starts, kernels, paces, log, at, state)
    while now < horizon_s and events < max_events:
        if began < 0 and (now > WARM_UP * horizon_s or events > WARM_UP * max_events):
            began = now
            count(starts, kernels, at, state, done[0])
        events += 1
        waiting = NEVER  # when the first of the others can run
        for i in range(tenants):
            if i != owner:
                waiting = min(waiting, state[READY, i])
        start = max(now, state[READY, owner])
        # No host launches more after a wait as soon as the GPU finds that there is nothing left.
        waited = _waited(owner, starts, kernels, at)
        patience = 0.0 if waited else max(patience_s, paces[GAP, owner] + DUST)
        idle = start - now > patience and waiting < start
        evicted = max(now + min(patience, patience_s) if idle else max(now, slice_end), waiting)
        if start + state[LEFT, owner] <= evicted:
            now = start + state[LEFT, owner]
            row = note(log, row, owner, at[owner] - starts[owner], start, now)
            advance(owner, now, starts, kernels, paces, at, state)
            row = _past_copies(owner, row, starts, kernels, paces, log, at, state)
        else:
            if evicted > start:
                row = note(log, row, owner, at[owner] - starts[owner], start, evicted)
            state[LEFT, owner] -= max(0.0, evicted - start)
            owner = _next_owner(owner, evicted, state)
            now = evicted + switch_s
            slice_end = now + slice_s
    count(starts, kernels, at, state, done[1])
    return now - began


def naive(
    starts, kernels, paces, tenants, total, log, rows, max_events, horizon_s, at, state, done,
    slice_s, patience_s, switch_s,
):  # fmt: skip
    """`_in_turn` of arrays at these addresses: of `tenants`, with `total` kernels."""
    return _in_turn(
        carray(starts, tenants + 1), carray(kernels, (7, total)), carray(paces, (3, tenants)),
        (slice_s, patience_s, switch_s), horizon_s, max_events, carray(log, (rows, 4)),
        carray(at, tenants), carray(state, (4, tenants)), carray(done, (2, tenants)),
    )  # fmt: skip
