"""No GPU draws more than it may: an answer's power and energy, held to a limit or a cap."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction


def held_to(mix: MixPrediction, most_w: float | None) -> MixPrediction:
    """`mix` with no power above `most_w`, and no energy above what steps take at that power.

    None is no limit. Of the power at most drawn each job has the part that it has of the mean.
    """
    if most_w is None or mix.power_w is None:
        return mix
    shares = [1.0] * len(mix.jobs) if mix.sharing.mode == "serial" else _shares(mix.jobs)
    return replace(
        mix,
        power_w=mix.power_w.at_most(Interval(most_w, most_w, most_w)),
        jobs=tuple(_held(job, share * most_w) for job, share in zip(mix.jobs, shares, strict=True)),
    )


def _shares(jobs: Sequence[JobPrediction]) -> list[float]:
    """The part of the GPU's power that is each job's, summing to 1."""
    drawn_w = [0.0 if each.energy_step_j is None else each.energy_step_j.p50 / each.step_s.p50
               for each in jobs]  # fmt: skip
    return [each / max(sum(drawn_w), 1e-9) for each in drawn_w]


def _held(job: JobPrediction, most_w: float) -> JobPrediction:
    if job.energy_step_j is None:
        return job
    before_j, step_j = job.energy_step_j, job.energy_step_j.at_most(job.step_s.scaled(most_w))

    def of_steps(before: Interval | None) -> Interval | None:
        """The energy of as many steps as `before` says."""
        return before and step_j.scaled(before.p50 / before_j.p50)

    return replace(
        job,
        energy_step_j=step_j,
        energy_epoch_j=of_steps(job.energy_epoch_j),
        energy_example_j=of_steps(job.energy_example_j),
    )
