"""The replay said plainly: the clock ticks, and in each tick every kernel gets what it can."""

from dataclasses import dataclass
from math import ceil


@dataclass
class SlowTenant:
    """One tenant; times in ticks."""

    launch: list
    duration: list
    waits: list  # how far the host is when it waits for each kernel
    demand: list
    waves: list
    host: float
    lead: float
    gap: float = 0.0
    in_turns: list | None = None
    at: int = 0
    host_start: float = 0.0
    ready: float = 0.0
    left: float = 0.0
    steps: float = 0.0
    kept: float = 0.0  # slots of its running blocks, and ticks until these end
    block: float = 0.0

    def start_at(self, kernel):
        """Begin in the middle of a step, as the fast replay lets its tenants do."""
        self.at, self.left, self.host_start = kernel, self.duration[kernel], -self.launch[kernel]

    def work(self, amount, now):
        self.left -= amount
        if self.left > 1e-9:
            return
        self.host_start = max(self.host_start, now - self.waits[self.at])
        self.at += 1
        if self.at == len(self.duration):
            self.at, self.steps = 0, self.steps + 1
            self.host_start = max(self.host_start + self.host, now - self.lead)
        self.left, self.kept = self.duration[self.at], 0.0
        self.ready = max(now + self.gap, self.host_start + self.launch[self.at])

    def copies(self):
        return self.in_turns is not None and not self.in_turns[self.at]

    def drains(self, limit):
        waves = self.waves[self.at] / limit
        wave = self.duration[self.at] / ceil(waves)
        return waves > 1 and wave / min(1, limit / self.demand[self.at]) >= 10

    def in_last_wave(self, limit):
        waves = self.waves[self.at] / limit
        return self.drains(limit) and self.left - 1e-9 <= self.duration[self.at] / ceil(waves)

    def still(self, limit):
        return 0.9 if self.drains(limit) else 1

    def wave(self, limit, exponent):
        stretched = self.duration[self.at] / limited_pace(limit / self.demand[self.at], exponent)
        return stretched / ceil(max(1, self.waves[self.at] / limit))

    def run_on(self, ticks, filled, wave, *, last):
        """Its blocks keep `filled` slots; those that have just got theirs have a wave to go."""
        fresh = max(0, filled - self.kept) / filled if filled else 0
        self.block += fresh * (wave - self.block) - ticks
        self.kept = filled if self.block > 1e-9 or not last else 0
        while self.block < 1e-9:
            self.block += wave

    def done(self):
        return self.steps + (sum(self.duration[: self.at + 1]) - self.left) / sum(self.duration)


def limited_pace(share, exponent):
    """Of a kernel that has a share of the SMs it could use: 0.25 ** exponent with a quarter."""
    if share >= 1:
        return 1
    return share * 4 ** ((1 - exponent) * (1 - share ** (2 / 3)) / (1 - 0.25 ** (2 / 3)))


def slow_mps(tenants, limits, exponents, ceded, ticks, *, late=()):
    """Ticks a step of each tenant, after a quarter of the time to warm up.

    Of those that come `late`, 0 or 1 each, blocks start where no other's wait to.
    """
    late = late or [0] * len(tenants)
    known = {}
    for now in range(ticks):
        if now == ticks // 4:
            before = [tenant.done() for tenant in tenants]
        queue = [i for i, tenant in enumerate(tenants) if tenant.ready <= now]
        queue.sort(key=lambda i: (late[i], tenants[i].ready, i))
        # Nothing else bears on what they get, which few things do from tick to tick.
        state = tuple([
            (i, tenants[i].at, tenants[i].in_last_wave(limits[i]), late[i] and tenants[i].kept)
            for i in queue
        ])  # fmt: skip
        if state not in known:
            known[state] = _got(
                tenants, queue, limits=limits, exponents=exponents, ceded=ceded, late=late
            )
        used, paces, filled, lost = known[state]
        for i, pace, slots in zip(queue, paces, filled, strict=True):
            if late[i]:
                wave = tenants[i].wave(limits[i], exponents[i])
                tenants[i].run_on(1 / max(1, used), slots, wave, last=i in lost)
            if pace > 0:
                tenants[i].work(pace / max(1, used), now + 1)
    return _ticks_a_step(tenants, before, ticks)


def _got(tenants, queue, *, limits, exponents, ceded, late):
    """SMs that the queue uses together, pace and slots of each in it, and who loses slots."""
    filled, still_held, lost = _filled(tenants, queue, limits, ceded, late)
    used, paces = 0.0, []
    for place, i in enumerate(queue):
        wanted = tenants[i].demand[tenants[i].at]
        started = filled[place] / _slots(tenants[i], limits[i])
        used += still_held[place] * started * min(wanted, limits[i])
        paces.append(started * limited_pace(limits[i] / wanted, exponents[i]))
    return used, paces, filled, lost


def _slots(tenant, limit):
    return min(1, tenant.waves[tenant.at], limit)


def _filled(tenants, queue, limits, ceded, late):
    """Slots of each kernel in the queue, the share of these that it keeps from the others.

    And who has them only until its running blocks end.
    """
    outranked = [i for i in queue if late[i] > late[queue[0]]]
    free, taken = 1.0, sum(tenants[i].still(limits[i]) * tenants[i].kept for i in outranked)
    filled, still_held, lost = [], [], []
    for place, i in enumerate(queue):
        behind = queue[place + 1 :]
        alike = sum(_slots(tenants[j], limits[j]) for j in behind if late[j] == late[i])
        later = sum(_slots(tenants[j], limits[j]) for j in behind if late[j] > late[i])
        mine = tenants[i].kept if i in outranked else 0
        taken -= tenants[i].still(limits[i]) * mine
        last = tenants[i].in_last_wave(limits[i])
        running = 0 if last else taken
        if i in outranked:
            others = max(running, ceded * min(1, alike))
        else:
            firsts = len(queue) - len(outranked)
            others = max(running, 0.02 * firsts * later) + ceded * min(1, alike)
        slots = max(0, min(_slots(tenants[i], limits[i]), free - others))
        if slots < mine:
            lost.append(i)
        filled.append(max(slots, mine))
        still_held.append(tenants[i].still(limits[i]) if last or i in lost else 1)
        free -= still_held[-1] * filled[-1]
    return filled, still_held, lost


def _copied(tenants, now):
    """Who copies from or to the host in this tick, which needs no turn."""
    copying = [tenant.copies() and tenant.ready <= now for tenant in tenants]
    for tenant, copies in zip(tenants, copying, strict=True):
        if copies:
            tenant.work(1, now + 1)
    return copying


def slow_naive(tenants, slice_ticks, switch_ticks, ticks):
    """Likewise, when one tenant at a time owns the whole GPU."""
    owner, held, switching = 0, 0, 0
    for now in range(ticks):
        if now == ticks // 4:
            before = [tenant.done() for tenant in tenants]
        copying = _copied(tenants, now)
        if switching:
            switching -= 1
            continue
        others = [(owner + k) % len(tenants) for k in range(1, len(tenants))]
        waiting = [i for i in others if tenants[i].ready <= now and not tenants[i].copies()]
        idle = tenants[owner].ready > now or copying[owner]
        if waiting and (idle or held >= slice_ticks):
            owner, held, switching = waiting[0], 0, switch_ticks
            if switching:
                switching -= 1
                continue
        if tenants[owner].ready <= now and not copying[owner]:
            tenants[owner].work(1, now + 1)
        held += 1
    return _ticks_a_step(tenants, before, ticks)


def _ticks_a_step(tenants, before, ticks):
    counted = ticks - ticks // 4
    return [counted / max(t.done() - b, 1e-9) for t, b in zip(tenants, before, strict=True)]
