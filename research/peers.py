"""Our reading of KACE's regression, fitted as our model is: without the families that it predicts.

KACE (Han et al., SoCC 2024) predicts the slowdown of co-located jobs by a linear regression on what
each shows alone. Here that is its busy share and GPM counters, and their sums over the other jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from sklearn.linear_model import LinearRegression

from advisor.learn.observations import ObservedRun, shared_runs
from advisor.learn.scores import RunComparison, sharing_of
from advisor.prediction.trace import Floats
from advisor.sharing import Mode, Sharing
from advisor.workload.profile import Profile
from research.evaluate import Evaluation, families_of

NAME = "kace"


def with_kace(evaluation: Evaluation) -> Evaluation:
    """Return `evaluation` with the regression among the baselines of each raw job."""
    chosen = evaluation.chosen
    rows = [
        (shared, x)
        for shared in shared_runs(chosen.profiles, chosen.runs, chosen.gpu)
        if (x := _columns(shared.as_measured, shared.sharing)) is not None
    ]
    models = {family: _without(family, rows) for family in families_of(chosen.predicted)}

    def predicted(run: RunComparison) -> RunComparison:
        sharing = sharing_of(run.run)
        x = _columns([chosen.profiles[job.job] for job in run.jobs], sharing)
        jobs = []
        for place, job in enumerate(run.jobs):
            model = models[job.family].get(sharing.mode)
            step_s = None
            if x is not None and model is not None:
                step_s = job.alone_s * float(np.exp(model.predict(x[place : place + 1])[0]))
            jobs.append(replace(job, baselines_s={**job.baselines_s, NAME: step_s}))
        return replace(run, jobs=tuple(jobs))

    return replace(
        evaluation,
        runs=tuple(map(predicted, evaluation.runs)),
        advice=tuple(map(predicted, evaluation.advice)),
    )


def _without(
    family: str, rows: Sequence[tuple[ObservedRun, Floats]]
) -> Mapping[Mode, LinearRegression]:
    """Fit the log slowdown in each mode to the runs without `family`."""
    by_mode: dict[Mode, list[tuple[Floats, Floats]]] = {}
    for shared, x in rows:
        if family not in shared.families:
            alone_s = [profile.step_s for profile in shared.as_measured]
            slower = np.log(shared.measured_s / alone_s)
            by_mode.setdefault(shared.mode, []).append((x, slower))
    return {
        mode: LinearRegression().fit(*(np.concatenate(part) for part in zip(*pairs, strict=True)))
        for mode, pairs in by_mode.items()
    }


def _columns(profiles: Sequence[Profile], sharing: Sharing) -> Floats | None:
    """Return each job's metrics and limit, and sums of the others'; None if one is missing."""
    own = []
    for profile in profiles:
        counters = profile.counters
        shares = (
            profile.busy_share,
            *(
                (
                    counters.sm_active,
                    counters.sm_occupancy,
                    counters.tensor_active,
                    counters.dram_active,
                )
                if counters
                else (None,)
            ),
        )
        if any(share is None for share in shares):
            return None
        own.append(shares)
    limits = np.array(sharing.limits or [100.0] * len(profiles)) / 100
    metrics = np.column_stack([np.array(own, dtype=float), limits])
    return np.hstack([metrics, metrics.sum(axis=0) - metrics])
