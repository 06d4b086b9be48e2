"""The compiled replay of blocks that start strictly in order, where tenants differ in priority.

Whoever comes first starts all blocks that fit before anyone who comes late, and of those alike in
that, whose kernel became ready first. A block that runs is never taken off its SM, and the last
wave of a kernel holds only as many slots as it has blocks. Kernels that only pass time showed so
on an H200. Kernels of real jobs leave room for others, as
`priority_engine` says; how far both differ tells the regression what it cannot see otherwise.

Blocks of a kernel that started at once end at once: they are a cohort, whose end is told in
seconds of work, which pass slower than time where kernels ask for more than the GPU does.
"""

from numba import carray

from advisor.prediction.engine import WARM_UP, advance, count, lean
from advisor.prediction.engine_layout import (
    BLOCKS,
    COHORTS,
    DEMAND,
    DURATION,
    DUST,
    HELD,
    LEFT,
    NEVER,
    READY,
    RUNNING,
    WAITING,
    WAVE,
)
from advisor.prediction.priority_engine import wake

# Cohorts of a kernel whose ends differ by less than this share of a wave are taken as one, and
# blocks start on no less than this share of the slots unless they are the last.
_ALIKE = 0.02
_FEWEST = 1e-4
_FEW = 1e-9  # share of the slots that is none


@lean
def _begin(i, share, end, wave_s, cohorts, ends, shares):
    """Blocks of tenant `i` start on a `share` of the slots; they run until `end`."""
    known, nearest = cohorts[i], 0
    for each in range(1, known):
        if abs(ends[i, each] - end) < abs(ends[i, nearest] - end):
            nearest = each
    alike = known > 0 and abs(ends[i, nearest] - end) < _ALIKE * wave_s
    if alike or known == COHORTS:
        both = shares[i, nearest] + share
        ends[i, nearest] = (ends[i, nearest] * shares[i, nearest] + end * share) / both
        shares[i, nearest] = both
    else:
        ends[i, known], shares[i, known] = end, share
        cohorts[i] += 1


@lean
def _start(worked, kernels, at, queue, active, blocks, cohorts, ends, shares):
    """Start what fits of the blocks that wait, along the queue."""
    waiting, running, free = blocks[WAITING], blocks[RUNNING], 1.0
    for place in range(active):
        free -= running[queue[place]]
    for place in range(active):
        i = queue[place]
        kernel = at[i]
        if kernels[BLOCKS, kernel] <= 0:  # a copy, which needs no slots
            if cohorts[i] == 0:
                _begin(i, 0.0, worked + kernels[DURATION, kernel], 0.0, cohorts, ends, shares)
            continue
        share = min(waiting[i], kernels[HELD, kernel] - running[i], free)
        if share > _FEWEST or (share > _FEW and share >= waiting[i] - DUST):
            wave_s = kernels[WAVE, kernel]
            _begin(i, share, worked + wave_s, wave_s, cohorts, ends, shares)
            waiting[i] -= share
            running[i] += share
            free -= share
            if waiting[i] < _FEW:
                waiting[i] = 0.0


@lean
def _end(i, worked, blocks, cohorts, ends, shares):
    """Take off the cohorts of tenant `i` that have ended; whether its kernel has."""
    each = 0
    while each < cohorts[i]:
        if ends[i, each] <= worked + DUST:
            blocks[RUNNING, i] -= shares[i, each]
            cohorts[i] -= 1
            ends[i, each], shares[i, each] = ends[i, cohorts[i]], shares[i, cohorts[i]]
        else:
            each += 1
    if cohorts[i] > 0:
        return False
    blocks[RUNNING, i] = 0.0
    return blocks[WAITING, i] <= 0


@lean
def _until_next(kernels, at, queue, active, blocks, cohorts, ends):
    """When, in seconds of work, the next cohort ends; and how far work is slower than time."""
    first, used = NEVER, 0.0
    for place in range(active):
        i = queue[place]
        held = kernels[HELD, at[i]]
        if held > 0:
            used += kernels[DEMAND, at[i]] * blocks[RUNNING, i] / held
        for each in range(cohorts[i]):
            first = min(first, ends[i, each])
    return first, max(1.0, used)


@lean
def _count(starts, kernels, at, state, queue, active, blocks, done):
    """As `count`, of kernels of which the blocks that run are half done."""
    for place in range(active):
        i = queue[place]
        whole = kernels[BLOCKS, at[i]]
        if whole > 0:
            left = min(1.0, (blocks[WAITING, i] + 0.5 * blocks[RUNNING, i]) / whole)
            state[LEFT, i] = left * kernels[DURATION, at[i]]
    count(starts, kernels, at, state, done)


@lean
def _in_order(
    starts, kernels, paces, late, horizon_s, max_events, at, state, queues, blocks, cohorts, ends,
    shares, done,
):  # fmt: skip
    """The loop of `mps_in_order`: the seconds between its two counts, the rows of `done`."""
    queue, asleep = queues[0], queues[1]
    now, worked, began, events, active, sleeping = 0.0, 0.0, -1.0, 0, 0, len(at)
    while now < horizon_s and events < max_events:
        if began < 0 and (now > WARM_UP * horizon_s or events > WARM_UP * max_events):
            began = now
            _count(starts, kernels, at, state, queue, active, blocks, done[0])
        active, sleeping, ready = wake(now, state[READY], late, queue, active, asleep, sleeping)
        _start(worked, kernels, at, queue, active, blocks, cohorts, ends, shares)
        end, load = _until_next(kernels, at, queue, active, blocks, cohorts, ends)
        pause = min((end - worked) * load, ready - now)
        now += pause
        worked += pause / load
        events += 1
        running = 0
        for place in range(active):
            i = queue[place]
            if _end(i, worked, blocks, cohorts, ends, shares):
                advance(i, now, starts, kernels, paces, at, state)
                blocks[WAITING, i] = kernels[BLOCKS, at[i]]
                asleep[sleeping] = i
                sleeping += 1
            else:
                queue[running] = i
                running += 1
        active = running
    _count(starts, kernels, at, state, queue, active, blocks, done[1])
    return now - began


def mps_in_order(
    starts, kernels, paces, tenants, total, _log, _rows, max_events, horizon_s, at, state, done,
    queues, blocks, late, cohorts, ends, shares,
):  # fmt: skip
    """`_in_order` of arrays at these addresses: of `tenants`, with `total` kernels."""
    return _in_order(
        carray(starts, tenants + 1), carray(kernels, (8, total)), carray(paces, (3, tenants)),
        carray(late, tenants), horizon_s, max_events, carray(at, tenants),
        carray(state, (4, tenants)), carray(queues, (2, tenants)), carray(blocks, (2, tenants)),
        carray(cohorts, tenants), carray(ends, (tenants, COHORTS)),
        carray(shares, (tenants, COHORTS)), carray(done, (2, tenants)),
    )  # fmt: skip
