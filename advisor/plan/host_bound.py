"""Which jobs wait for their hosts, and which other variants of the same work would not."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.plan.bottlenecks import Binding
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload
from advisor.workload.store import load_profile, profile_paths

_WAYS = re.compile(r"(?:-(?:compiled|graph))?(?:-loader\d+)?$")
# A job whose GPU works for less than this share of its step could run far faster: a choice.
_FAR = 2 / 3
# A variant whose step takes less than this share of the job's is shown: a choice.
_FASTER = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBound:
    """A job that a shorter host path would speed up more than any sharing can.

    Attributes:
        host_share: Share of its predicted step that its host path takes, 0..1.
        gpu_share: Share of its step alone in which the GPU works for it, 0..1.
        step_s: Its step alone, as measured.
        variant: Name of the fastest profile of the same work; None where none is faster.
        variant_step_s: Step alone of that profile, as measured.
    """

    job: str
    host_share: float
    gpu_share: float
    step_s: float
    variant: str | None
    variant_step_s: float | None


def host_bound(
    jobs: Sequence[Job], bound: Binding, variants: Sequence[Profile]
) -> tuple[HostBound, ...]:
    """The jobs that their hosts hold far below the pace of the GPU; of equal jobs one.

    `bound` says what limits the jobs under a plan. Faster profiles of the same work are looked for
    among `variants`.
    """
    found: dict[str, HostBound] = {}
    for at in bound.by_host:
        profile, host_share = jobs[at].profile, bound.host_shares[at]
        gpu_share = profile.busy_share
        if host_share is None or gpu_share is None or gpu_share >= _FAR or profile.name in found:
            continue
        work, least_s = profile.workload, _FASTER * profile.step_s
        faster = [v for v in variants if v.step_s < least_s and same_work(v.workload, work)]
        best = min(faster, key=lambda each: each.step_s, default=None)
        found[profile.name] = HostBound(
            job=profile.name, host_share=host_share, gpu_share=gpu_share, step_s=profile.step_s,
            variant=best.name if best else None, variant_step_s=best.step_s if best else None,
        )  # fmt: skip
    return tuple(found.values())


def variants_of(
    jobs: Iterable[Job], gpu: str, profiles: Path | None = None
) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """Profiles of the same work as one of `jobs`, with another loader or execution.

    They are recognised by names that end in ``-compiled``, ``-graph`` or ``-loaderN``.

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


def same_work(one: Workload, other: Workload) -> bool:
    """Whether both do the same work, be it in another execution or by another loader."""
    return _work(one) == _work(other)


def _work(workload: Workload) -> Workload:
    """A key that is equal for workloads of the same work; loading input is part of the work.

    Of a script nothing is known but its name.
    """
    loads = int(bool(workload.loader_workers))
    key = replace(
        workload, name="work", execution="eager", loader_workers=loads, examples_per_epoch=None
    )
    if workload.source != "script":
        return key
    name = _WAYS.sub("", workload.name)
    return replace(key, model=name, family=name)
