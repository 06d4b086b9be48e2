"""From the pace of each mix to the end of all jobs: time and energy."""

from collections.abc import Sequence
from statistics import median
from typing import Literal

from advisor.planning.mixes import Mixes
from advisor.planning.plan import Forecast
from advisor.prediction.answer import Interval
from advisor.sharing import Phases, Serial, Sharing
from advisor.simulation.phased import in_turn
from advisor.simulation.timeline import Pace, Phase, one_by_one, together

_Level = Literal["p05", "p50", "p95"]
_LEVELS: tuple[_Level, ...] = ("p05", "p50", "p95")


def forecast(mixes: Mixes, sharing: Sharing) -> Forecast:
    """What happens to all of the jobs under `sharing`, whether it fits or not."""
    whole = mixes.whole(sharing)
    spans = _timelines(mixes, sharing)
    if spans is None:
        return Forecast(
            prediction=whole, makespan_interval_s=None, energy_j=None, speedup_vs_serial=None
        )
    makespan_s = Interval(*(span[-1].end_s for span in spans))
    return Forecast(
        prediction=whole,
        makespan_interval_s=makespan_s,
        energy_j=_energy_j(mixes, sharing, spans),
        speedup_vs_serial=_serial_s(mixes) / makespan_s.p50,
    )


def _serial_s(mixes: Mixes) -> float:
    """Seconds of all jobs in turn; every job's length is known."""
    return sum(
        (job.work_steps or 0.0) * answer.step_s.p50
        for job, answer in zip(mixes.jobs, mixes.whole(Serial()).jobs, strict=True)
    )


def _timelines(mixes: Mixes, sharing: Sharing) -> list[tuple[Phase, ...]] | None:
    """What happens if every step takes as long as `_LEVELS` say; None for unknown lengths."""
    known = [job.work_steps for job in mixes.jobs]
    work = [steps for steps in known if steps is not None]
    if len(work) < len(known):
        return None

    def span(level: _Level) -> tuple[Phase, ...]:
        def pace(running: tuple[int, ...]) -> Sequence[float]:
            answers = mixes.part(sharing, running).jobs
            return [1 / getattr(answer.step_s, level) for answer in answers]

        return _span(sharing, work, pace)

    return [span(level) for level in _LEVELS]


def _span(sharing: Sharing, work: Sequence[float], pace: Pace) -> tuple[Phase, ...]:
    if isinstance(sharing, Phases):
        return in_turn(sharing, work, pace)
    return one_by_one(work, pace) if isinstance(sharing, Serial) else together(work, pace)


def _energy_j(
    mixes: Mixes, sharing: Sharing, spans: Sequence[tuple[Phase, ...]]
) -> Interval | None:
    powers = {
        phase.running: _power_w(mixes, sharing, phase.running) for span in spans for phase in span
    }
    known = {running: power_w for running, power_w in powers.items() if power_w is not None}
    if len(known) < len(powers):
        return None
    return Interval(
        *(
            sum(phase.seconds * getattr(known[phase.running], level) for phase in span)
            for level, span in zip(_LEVELS, spans, strict=True)
        )
    )


def _power_w(mixes: Mixes, sharing: Sharing, running: tuple[int, ...]) -> Interval | None:
    """Of the whole GPU while these jobs run; its idle power while none does."""
    if running:
        return mixes.part(sharing, running).power_w
    idle_w = [job.profile.idle_power_w for job in mixes.jobs]
    measured = [watts for watts in idle_w if watts is not None]
    return Interval(*[median(measured)] * 3) if measured else None
