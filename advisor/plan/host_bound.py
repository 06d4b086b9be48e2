"""Whether the host holds jobs back, and what frees them: other variants of the same work."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from advisor.errors import InvalidInput
from advisor.plan.bottlenecks import Binding
from advisor.prediction.mix_prediction import Interval
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload
from advisor.workload.store import load_profile, profile_paths

_WAYS = re.compile(r"(?:-(?:compiled|graph))?(?:-loader\d+)?$")
# A job whose GPU works for less than this share of its step could run far faster: a choice.
_FAR = 2 / 3
# A variant whose step takes less than this share of the job's is shown: a choice.
_FASTER = 0.95
RemedyKind = Literal["loader workers", "shared loading", "CUDA graph", "fusing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBound:
    """A job that a faster host path would make faster than any sharing can.

    Attributes:
        host_share: Share of its step, at the plan's pace, that its host path takes, 0..1.
        gpu_share: Share of its step, alone, in which the GPU works for it, 0..1.
        step_s: Of it alone, measured.
        variant: Name of the fastest profile of the same work, if another is faster.
        variant_step_s: Of that alone, measured.
    """

    job: str
    host_share: float
    gpu_share: float
    step_s: float
    variant: str | None
    variant_step_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change to a job that waits for its host, and how much faster it then trains.

    Attributes:
        workers: Loader workers that it should have; None where these are not what changes.
        gain: Steps now over steps then, in the same plan; predicted, never measured.
    """

    job: str
    kind: RemedyKind
    workers: int | None
    gain: Interval


def host_bound(
    jobs: Sequence[Job], bound: Binding, variants: Sequence[Profile]
) -> tuple[HostBound, ...]:
    """Those of `jobs` that their hosts hold back far below the GPU's pace, each kind once.

    `bound` says what binds them under a plan; a faster profile is looked for among `variants`.
    """
    found: dict[str, HostBound] = {}
    for at in bound.by_host:
        profile, host_share = jobs[at].profile, bound.host_shares[at]
        gpu_share = profile.busy_share
        if host_share is None or gpu_share is None or gpu_share >= _FAR or profile.name in found:
            continue
        work, least_s = _work(profile.workload), _FASTER * profile.step_s
        faster = [v for v in variants if v.step_s < least_s and _work(v.workload) == work]
        best = min(faster, key=lambda each: each.step_s, default=None)
        found[profile.name] = HostBound(
            job=profile.name, host_share=host_share, gpu_share=gpu_share, step_s=profile.step_s,
            variant=best.name if best else None, variant_step_s=best.step_s if best else None,
        )  # fmt: skip
    return tuple(found.values())


def variants_of(
    jobs: Iterable[Job], gpu: str, profiles: Path | None = None
) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """Profiles of the same work as one of `jobs` with another loader or execution.

    Found by name: ``-compiled``, ``-graph`` and ``-loaderN`` end it.

    Returns:
        The profiles, and why files of such a name hold none.
    """
    names = {job.name for job in jobs}
    stems = {_WAYS.sub("", name) for name in names}
    found, refused = [], []
    for name, path in profile_paths(gpu, profiles).items():
        if name not in names and _WAYS.sub("", name) in stems:
            try:
                found.append(load_profile(str(path), gpu, profiles))
            except InvalidInput as error:
                refused.append(str(error))
    return tuple(found), tuple(refused)


def _work(workload: Workload) -> Workload:
    """Equal for workloads that do the same; a job that loads its input cannot do without that."""
    loads = int(bool(workload.loader_workers))
    return replace(
        workload, name="work", execution="eager", loader_workers=loads, examples_per_epoch=None
    )
