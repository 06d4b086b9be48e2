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
        self.left = self.duration[self.at]
        self.ready = max(now + self.gap, self.host_start + self.launch[self.at])

    def copies(self):
        return self.in_turns is not None and not self.in_turns[self.at]

    def slots(self, limit):
        return min(1, self.waves[self.at], limit)

    def in_last_wave(self, limit):
        """Whether the last blocks of a grid of several long waves run, so that slots empty."""
        waves, duration = self.waves[self.at] / limit, self.duration[self.at]
        wave = duration / ceil(waves)
        drains = waves > 1 and wave / min(1, limit / self.demand[self.at]) >= 10
        return drains and self.left - 1e-9 <= wave

    def done(self):
        return self.steps + (sum(self.duration[: self.at + 1]) - self.left) / sum(self.duration)


def limited_pace(share, exponent):
    """Of a kernel that has a share of the SMs it could use: 0.25 ** exponent with a quarter."""
    if share >= 1:
        return 1
    return share * 4 ** ((1 - exponent) * (1 - share ** (2 / 3)) / (1 - 0.25 ** (2 / 3)))


def slow_mps(tenants, limits, exponents, ceded, ticks):
    """Ticks a step of each tenant, after a quarter of the time to warm up."""
    known = {}
    for now in range(ticks):
        if now == ticks // 4:
            before = [tenant.done() for tenant in tenants]
        queue = [i for i, tenant in enumerate(tenants) if tenant.ready <= now]
        queue.sort(key=lambda i: (tenants[i].ready, i))
        # Nothing else bears on what they get, which few things do from tick to tick.
        state = tuple([(i, tenants[i].at, tenants[i].in_last_wave(limits[i])) for i in queue])
        if state not in known:
            known[state] = _shared_out(tenants, queue, limits, exponents, ceded)
        used, paces = known[state]
        for i, pace in zip(queue, paces, strict=True):
            if pace > 0:
                tenants[i].work(pace / max(1, used), now + 1)
    return _ticks_a_step(tenants, before, ticks)


def _shared_out(tenants, queue, limits, exponents, ceded):
    """SMs that the queue uses together, and the pace of each tenant in it."""
    free, used, paces = 1.0, 0.0, []
    for place, i in enumerate(queue):
        tenant, limit = tenants[i], limits[i]
        behind = sum(tenants[j].slots(limits[j]) for j in queue[place + 1 :])
        filled = max(0, min(tenant.slots(limit), free - ceded * min(1, behind)))
        held = 0.9 if tenant.in_last_wave(limit) else 1
        free -= held * filled
        demand, started = tenant.demand[tenant.at], filled / tenant.slots(limit)
        used += held * started * min(demand, limit)
        paces.append(started * limited_pace(limit / demand, exponents[i]))
    return used, paces


def slow_naive(tenants, slice_ticks, switch_ticks, ticks):
    """Likewise, when one tenant at a time owns the whole GPU."""
    owner, held, switching = 0, 0, 0
    for now in range(ticks):
        if now == ticks // 4:
            before = [tenant.done() for tenant in tenants]
        copying = [tenant.copies() and tenant.ready <= now for tenant in tenants]
        for tenant, copies in zip(tenants, copying, strict=True):
            if copies:  # from or to the host, which needs no turn
                tenant.work(1, now + 1)
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
