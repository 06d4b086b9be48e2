"""The compiled part of replay where tenants differ in priority; as `engine`, which is faster.

A kernel of a tenant that comes late starts blocks where nobody else has any to start; each kernel
that does lets it start some all the same. Blocks that run are not taken off their SMs: until they
end, all at once, it keeps the slots they have. What those who come first cede to each other is
beside that: else a short kernel behind a long one would wait for who comes late.
"""

import numpy as np
from numba import carray

from advisor.prediction.engine import STILL_HELD, WARM_UP, advance, count, lean, note
from advisor.prediction.engine_layout import (
    BLOCK,
    DEMAND,
    DUST,
    KEPT,
    LATE_RATE,
    LATE_SINCE,
    LEFT,
    NEVER,
    READY,
    WAVE,
)

# Share of the slots that it could hold which each kernel that comes first leaves to one that comes
# late: of 0.015, 0.02, 0.025 and 0.03 what suits 44 runs on an H200 best, whatever family is out.
LEFT_TO_LATE = 0.02


@lean
def _still(drain_s):
    """Share of its slots that a kernel has, in the mean, until its running blocks end."""
    return STILL_HELD if drain_s > 0 else 1.0


@lean
def _first_late(late, drain, queue, active, kept, block):
    """Where those who come late begin in the queue, and what their running blocks keep."""
    for place in range(active):
        if late[queue[place]] > late[queue[0]]:
            taken = 0.0
            for behind in range(place, active):
                i = queue[behind]
                if block[i] <= DUST:
                    kept[i] = 0.0
                taken += _still(drain[i]) * kept[i]
            return place, taken
    return active, 0.0


@lean
def _share_out(left, late, ceded, queue, active, current):
    """Start blocks along the queue: fills rates, returns seconds until that changes, and load."""
    demand, held, drain, wave = current[0], current[1], current[2], current[3]
    rate, kept, block = current[LATE_RATE], current[KEPT], current[BLOCK]
    outranked, taken = _first_late(late, drain, queue, active, kept, block)
    first, last, free, used, pause = 0.0, 0.0, 1.0, 0.0, NEVER  # slots that both kinds wait for
    for place in range(active):
        if place < outranked:
            first += held[queue[place]]
        else:
            last += held[queue[place]]
    for place in range(active):
        i = queue[place]
        most, mine = held[i], 0.0
        if place < outranked:
            first -= most
        else:
            last -= most
            mine = kept[i]
            taken -= _still(drain[i]) * mine
        until, still, others = left[i] - drain[i], 1.0, taken
        if until <= DUST:  # its blocks run, whatever has started since
            until, still, others = left[i], STILL_HELD, 0.0
        elif place == active - 1:  # nobody waits for its last blocks to start
            until = left[i]
        if place < outranked:
            others = max(others, LEFT_TO_LATE * outranked * last) + ceded * min(1.0, first)
        else:
            others = max(others, ceded * min(1.0, last))
        running = max(0.0, min(most, free - others))
        if running < mine - DUST:
            running, still = mine, _still(drain[i])
            pause = min(pause, block[i])
        pace = 1.0 if running == most else running / most
        free -= still * running
        used += still * pace * demand[i]
        rate[i] = pace
        if until < pause * pace:
            pause = until / pace
        if late[i]:
            fresh = max(0.0, running - kept[i]) / max(running, DUST)
            block[i] += fresh * (wave[i] - block[i])
            kept[i] = running
    load = max(1.0, used)
    return pause * load, load


@lean
def wake(now, ready, late, queue, active, asleep, sleeping):
    """As of `engine`, with those who come late behind the others."""
    next_ready, still = NEVER, 0
    for place in range(sleeping):
        i = asleep[place]
        if ready[i] <= now:
            before = active
            while before > 0 and late[queue[before - 1]] > late[i]:
                queue[before] = queue[before - 1]
                before -= 1
            queue[before] = i
            active += 1
        else:
            asleep[still] = i
            still += 1
            next_ready = min(next_ready, ready[i])
    return active, still, next_ready


@lean
def _side_by_side(
    starts, kernels, paces, late, ceded, horizon_s, max_events, log, at, state, queues, current,
    done,
):  # fmt: skip
    """The loop of `mps_by_priority`: the seconds between its two counts, the rows of `done`."""
    left, ready, queue, asleep = state[LEFT], state[READY], queues[0], queues[1]
    rate, since, kept, block = (
        current[LATE_RATE],
        current[LATE_SINCE],
        current[KEPT],
        current[BLOCK],
    )
    now, began, events, active, sleeping, row = 0.0, -1.0, 0, 0, len(at), 0
    while now < horizon_s and events < max_events:
        if began < 0 and (now > WARM_UP * horizon_s or events > WARM_UP * max_events):
            began = now
            count(starts, kernels, at, state, done[0])
        active, sleeping, next_ready = wake(now, ready, late, queue, active, asleep, sleeping)
        pause, load = _share_out(left, late, ceded, queue, active, current)
        pause = min(pause, next_ready - now)
        running = 0
        for place in range(active):
            i = queue[place]
            if rate[i] > DUST and since[i] > now:
                since[i] = now
            left[i] -= rate[i] * (pause / load)
            block[i] = _left_of_blocks(block[i] - pause / load, current[WAVE - DEMAND, i])
            if left[i] > DUST:
                queue[running] = i
                running += 1
            else:
                row = note(log, row, i, at[i] - starts[i], since[i], now + pause)
                since[i], kept[i] = NEVER, 0.0
                advance(i, now + pause, starts, kernels, paces, at, state)
                for need in range(LATE_RATE):
                    current[need, i] = kernels[DEMAND + need, at[i]]
                asleep[sleeping] = i
                sleeping += 1
        now += pause
        events += active - running
        active = running
    count(starts, kernels, at, state, done[1])
    return now - began


@lean
def _left_of_blocks(left_s, wave_s):
    """Seconds until running blocks end, of which others followed those that ended before now."""
    if left_s >= -DUST:
        return left_s
    return left_s + wave_s * np.ceil(-left_s / wave_s)


def mps_by_priority(
    starts, kernels, paces, tenants, total, log, rows, max_events, horizon_s, at, state, done,
    ceded, queues, current, late,
):  # fmt: skip
    """`_side_by_side` of arrays at these addresses: of `tenants`, with `total` kernels."""
    return _side_by_side(
        carray(starts, tenants + 1), carray(kernels, (8, total)), carray(paces, (3, tenants)),
        carray(late, tenants), ceded, horizon_s, max_events, carray(log, (rows, 4)),
        carray(at, tenants), carray(state, (4, tenants)), carray(queues, (2, tenants)),
        carray(current, (8, tenants)), carray(done, (2, tenants)),
    )  # fmt: skip
