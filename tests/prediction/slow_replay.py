"""The replay said plainly: the clock ticks, and in each tick every kernel gets what it can."""

from dataclasses import dataclass, field
from math import ceil


@dataclass
class SlowTenant:
    """One tenant; times in ticks."""

    launch: list
    duration: list
    demand: list
    waves: list
    host: float
    lead: float
    at: int = 0
    host_start: float = 0.0
    ready: float = 0.0
    left: float = 0.0
    steps: float = 0.0
    busy: float = field(default=0.0)

    def start_at(self, kernel):
        """Begin in the middle of a step, as the fast replay lets its tenants do."""
        self.at, self.left, self.host_start = kernel, self.duration[kernel], -self.launch[kernel]

    def work(self, amount, now):
        self.left -= amount
        if self.left > 1e-9:
            return
        self.at += 1
        if self.at == len(self.duration):
            self.at, self.steps = 0, self.steps + 1
            self.host_start = max(self.host_start + self.host, now - self.lead)
        self.left = self.duration[self.at]
        self.ready = max(now, self.host_start + self.launch[self.at])

    def in_last_wave(self, limit):
        waves = self.waves[self.at] / limit
        wave, left = self.duration[self.at] / ceil(waves), self.left - 1e-9
        return waves > 1 and left <= wave and wave / min(1, limit / self.demand[self.at]) >= 10

    def done(self):
        return self.steps + (sum(self.duration[: self.at + 1]) - self.left) / sum(self.duration)


def slow_mps(tenants, limits, exponents, ceded, ticks):
    """Ticks a step of each tenant, after a quarter of the time to warm up."""
    for now in range(ticks):
        if now == ticks // 4:
            before = [tenant.done() for tenant in tenants]
        queue = [i for i, tenant in enumerate(tenants) if tenant.ready <= now]
        queue.sort(key=lambda i: (tenants[i].ready, i))
        slots = [min(1, tenants[i].waves[tenants[i].at], limits[i]) for i in queue]
        free, used, paces = 1.0, 0.0, []
        for place, i in enumerate(queue):
            filled = max(0, min(slots[place], free - ceded * min(1, sum(slots[place + 1 :]))))
            still_held = 0.9 if tenants[i].in_last_wave(limits[i]) else 1
            free -= still_held * filled
            started = filled / slots[place]
            wanted = tenants[i].demand[tenants[i].at]
            used += still_held * started * min(wanted, limits[i])
            paces.append(started * min(1, limits[i] / wanted) ** exponents[i])
        for i, pace in zip(queue, paces, strict=True):
            if pace > 0:
                tenants[i].work(pace / max(1, used), now + 1)
    return _ticks_a_step(tenants, before, ticks)


def slow_naive(tenants, slice_ticks, switch_ticks, ticks):
    """Likewise, when one tenant at a time owns the whole GPU."""
    owner, held, switching = 0, 0, 0
    for now in range(ticks):
        if now == ticks // 4:
            before = [tenant.done() for tenant in tenants]
        if switching:
            switching -= 1
            continue
        others = [(owner + k) % len(tenants) for k in range(1, len(tenants))]
        waiting = [i for i in others if tenants[i].ready <= now]
        idle = tenants[owner].ready > now
        if waiting and (idle or held >= slice_ticks):
            owner, held, switching = waiting[0], 0, 0 if idle else switch_ticks
            if switching:
                switching -= 1
                continue
        if tenants[owner].ready <= now:
            tenants[owner].work(1, now + 1)
        held += 1
    return _ticks_a_step(tenants, before, ticks)


def _ticks_a_step(tenants, before, ticks):
    counted = ticks - ticks // 4
    return [counted / max(t.done() - b, 1e-9) for t, b in zip(tenants, before, strict=True)]
