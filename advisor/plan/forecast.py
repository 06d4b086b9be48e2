"""From the pace of each mix to the end of all jobs: time and energy."""

from collections.abc import Sequence

from advisor.plan.prediction_cache import Mixes
from advisor.plan.recommendation import Forecast
from advisor.prediction.mix_prediction import LEVELS, Level
from advisor.sharing import Serial, Sharing
from advisor.timeline.event_loop import History, PlacedJobs
from advisor.timeline.outcome import around, energy_j, idle_power_w
from advisor.timeline.waiting_jobs import from_the_start


def forecast(mixes: Mixes, sharing: Sharing) -> Forecast:
    """What happens to all of the jobs under `sharing`, whether it fits or not."""
    whole = mixes.whole(sharing)
    histories = _histories(mixes, sharing)
    deadlines_s = tuple(job.deadline_s for job in mixes.jobs)
    if histories is None:
        return Forecast(
            prediction=whole, makespan_interval_s=None, energy_j=None, speedup_vs_serial=None,
            deadlines_s=deadlines_s,
        )  # fmt: skip
    makespan_s = around([each.makespan_s for each in histories])
    return Forecast(
        prediction=whole,
        makespan_interval_s=makespan_s,
        energy_j=energy_j(
            histories,
            lambda seats: mixes.part(sharing, _running(seats)).power_w,
            idle_power_w([job.profile for job in mixes.jobs]),
        ),
        speedup_vs_serial=serial_s(mixes) / makespan_s.p50,
        ends_s=tuple(map(around, zip(*(each.ends_s for each in histories), strict=True))),
        deadlines_s=deadlines_s,
    )


def serial_s(mixes: Mixes) -> float:
    """Seconds of all jobs in turn; every job's length is known."""
    return sum(
        (job.work_steps or 0.0) * answer.step_s.p50
        for job, answer in zip(mixes.jobs, mixes.whole(Serial()).jobs, strict=True)
    )


def _histories(mixes: Mixes, sharing: Sharing) -> list[History] | None:
    """What happens if every step takes as long as `LEVELS` say; None for unknown lengths."""
    known = [job.work_steps for job in mixes.jobs]
    work = [steps for steps in known if steps is not None]
    if len(work) < len(known):
        return None

    def history(level: Level) -> History:
        def pace(seats: PlacedJobs) -> Sequence[float]:
            answers = mixes.part(sharing, _running(seats)).jobs
            return [1 / answer.step_s.at(level) for answer in answers]

        return from_the_start(sharing, work, pace)

    return [history(level) for level in LEVELS]


def _running(seats: PlacedJobs) -> tuple[int, ...]:
    return tuple(seat.job for seat in seats)
