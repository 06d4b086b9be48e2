"""Blocks that start strictly in order, said plainly: lists of blocks, from one moment to the next.

As in `slow_replay`, times are in ticks; a moment need not be a whole one.
"""

from dataclasses import dataclass, field

from tests.prediction.slow_replay import SlowTenant

NONE = 1e-9


@dataclass
class Blocks:
    """Those of a tenant's kernel, in slots: which wait, and which run until when."""

    tenant: SlowTenant
    limit: float
    exponent: float
    waiting: float = 0.0
    running: list = field(default_factory=list)  # pairs: slots, end in ticks of work

    def __post_init__(self):
        self.waiting = self.tenant.waves[self.tenant.at]

    @property
    def held(self):
        return sum(slots for slots, _ in self.running)

    @property
    def used(self):
        """SMs that the blocks which run ask for."""
        at = self.tenant.at
        most = min(self.limit, self.tenant.waves[at])
        return min(self.tenant.demand[at], self.limit) * self.held / most

    def start(self, free, worked):
        slots = min(self.waiting, self.limit - self.held, free)
        if slots > NONE:
            self.running.append((slots, worked + self.tenant.wave(self.limit, self.exponent)))
            self.waiting -= slots

    def end(self, worked, now):
        self.running = [(slots, end) for slots, end in self.running if end > worked + NONE]
        if not self.running and self.waiting <= NONE:
            self.tenant.work(self.tenant.left, now)
            self.waiting = self.tenant.waves[self.tenant.at]

    def done(self):
        """Steps so far; a block that runs counts as half done."""
        at = self.tenant.at
        left = (self.waiting + self.held / 2) / self.tenant.waves[at]
        self.tenant.left = left * self.tenant.duration[at]
        return self.tenant.done()


def slow_in_order(tenants, limits, exponents, ticks, *, late):
    """Ticks a step of each tenant, after a quarter of the time; `late`: 0 or 1 each."""
    jobs = [Blocks(*each) for each in zip(tenants, limits, exponents, strict=True)]
    now, worked, before, began = 0.0, 0.0, None, 0.0
    while now < ticks:
        if before is None and now > ticks / 4:
            before, began = [job.done() for job in jobs], now
        ready = [i for i, tenant in enumerate(tenants) if tenant.ready <= now + NONE]
        ready.sort(key=lambda i: (late[i], tenants[i].ready, i))
        for i in ready:
            jobs[i].start(1 - sum(job.held for job in jobs), worked)
        load = max(1, sum(job.used for job in jobs))
        ends = [(end - worked) * load for job in jobs for _, end in job.running]
        wakes = [each.ready - now for i, each in enumerate(tenants) if i not in ready]
        pause = min(ends + wakes)
        now, worked = now + pause, worked + pause / load
        for i in ready:
            jobs[i].end(worked, now)
    pairs = zip(jobs, before, strict=True)
    return [(now - began) / max(job.done() - done, NONE) for job, done in pairs]
