"""The runs of ``advisor confirm``: the cases of the collocation studies, on any GPU.

Robroek et al., An Analysis of Collocation on GPUs for Deep Learning Training, EuroMLSys 2024: three
sizes of training alone, two, three and seven at once, some of different sizes, and a recommender
beside ResNet-152.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from advisor.hardware.catalogue import Gpu, MigProfile, gpu
from advisor.measure.campaign.campaign_file import Campaign, CampaignTiming, MissingProfiles
from advisor.measure.shared.planned_run import PlannedRun
from advisor.workload.files import beside_package
from advisor.workload.named_workloads import workload
from advisor.workload.spec import Workload

NAME = "confirm"
"""Of the campaign, and so of its file of runs."""

_SMALL, _MEDIUM, _LARGE = (
    "resnet26-cifar10-bs128", "resnet50-imagenet64-bs128", "resnet152-imagenet-bs32",
)  # fmt: skip
_COPIED = (
    "resnet26-cifar10-bs32", _SMALL, "tf_efficientnetv2_s-cifar10-bs128",
    "resnet50-imagenet64-bs32", _MEDIUM, "tf_efficientnetv2_s-imagenet64-bs128",
    _LARGE, "cait_xxs24_224-imagenet-bs128",
)  # fmt: skip
# Two of these are more than the 40 GB of the studies' GPUs.
_BIG = ("resnet152-imagenet-bs128", "tf_efficientnetv2_s-imagenet-bs128")
_DEGREES = (2, 3, 7)
_MIXED = (
    (_MEDIUM, _SMALL), (_MEDIUM, _SMALL, _SMALL), (_MEDIUM, _MEDIUM, _MEDIUM, _SMALL),
    (_LARGE, _SMALL), (_LARGE, _MEDIUM),
)  # fmt: skip

# Tables of the recommender in GiB, largest first, and what it and ResNet-152 take beyond them.
_TABLES_GIB = (29, 8, 1)
_BESIDE_TABLES_MIB = 10 * 1024

# A trial without a GPU, whose figures say nothing.
_ON_A_CPU = ("mlp-toy-bs32", "mlp-toy-bs64")
_SEED = 2053


def cases(key: str, *, whole: bool = False) -> Campaign:
    """What to measure on the GPU model `key`, or on ``"cpu"``.

    Args:
        key: Of the catalogue.
        whole: Whether all jobs are profiled; else only those of which no such GPU's profile is
            shipped.
    """
    on_cpu = key == "cpu"
    mixes = [(_ON_A_CPU[0],) * 2, _ON_A_CPU] if on_cpu else list(_mixes(key))
    alone = dict.fromkeys(name for mix in mixes for name in mix)
    shipped = beside_package("profiles") / key
    known = (str(shipped),) if shipped.is_dir() and not whole else ()
    return Campaign(
        name=NAME,
        prefix=f"{NAME}-",
        gpu=key,
        seed=_SEED,
        small=tuple(map(workload, alone)),
        solo_every=4,
        solos_of_each=1,
        runs=_runs(mixes, ("naive",) if on_cpu else ("naive", "mps")),
        timing=CampaignTiming(settle_s=0.1, window_s=0.1) if on_cpu else CampaignTiming(),
        profile=MissingProfiles(missing=True, known=known),
    )


def _mixes(key: str) -> Iterator[tuple[str, ...]]:
    for name in _COPIED:
        yield from ((name,) * degree for degree in _DEGREES)
    yield from ((name,) * 2 for name in _BIG)
    yield from _MIXED
    yield from _beside_recommender(gpu(key))


def _beside_recommender(card: Gpu) -> Iterator[tuple[str, str]]:
    free_mib = card.usable_mib - _BESIDE_TABLES_MIB
    fits = (gib for gib in _TABLES_GIB if gib * 1024 <= free_mib)
    yield from ((f"dlrm-{gib}gb-bs1", _LARGE) for gib in islice(fits, 1))


def _runs(mixes: Sequence[tuple[str, ...]], sharings: Sequence[str]) -> tuple[PlannedRun, ...]:
    """Each mix under each sharing, in an order drawn by a seed, so that none is always late."""
    runs = [
        PlannedRun(
            id=f"confirm-{_spelt(mix)}-{sharing}", sharing=sharing, purpose="chosen",
            workloads=tuple(map(workload, mix)),
        )
        for mix in mixes
        for sharing in sharings
    ]  # fmt: skip
    Random(_SEED).shuffle(runs)
    return tuple(runs)


def _spelt(mix: Sequence[str]) -> str:
    return "+".join(f"{mix.count(name)}x-{name}" for name in dict.fromkeys(mix))


@dataclass(frozen=True, slots=True)
class InstanceCase:
    """Workloads that run at the same time on MIG instances, each on one or on a part of one.

    Attributes:
        sharing: In the notation of `advisor.sharing.parse_sharing`.
    """

    id: str
    sharing: str
    workloads: tuple[Workload, ...]


def instance_cases(key: str) -> tuple[InstanceCase, ...]:
    """The studies' cases on instances of the GPU model `key`; none where it has no MIG.

    Copies get the largest instances of which there are so many, as in the first study, and one
    alone also the second largest.
    """
    card = gpu(key)
    rows = _plain_instances(card)
    mixes = [
        ((name,) * copies, (row.name,) * copies)
        for name in _COPIED
        for copies, row in _rows_for_copies(rows)
    ]
    if {1, 2, 3} <= {row.compute_slices for row in rows}:
        sizes = {row.compute_slices: row.name for row in rows}
        of = {_SMALL: sizes[1], _MEDIUM: sizes[2], _LARGE: sizes[3]}
        mixes += [(mix, tuple(of[name] for name in mix)) for mix in _MIXED]
    found = [_instance_case(mix, "mig=" + ",".join(names)) for mix, names in mixes]
    whole = max(rows, key=lambda row: row.compute_slices, default=None)
    if whole is not None and whole.compute_slices == 7:
        parts = f"mig={whole.name}@0/ci=3c[1]+4c[2]"
        found += [_instance_case(mix, parts) for mix in _beside_recommender(card)]
    return tuple(found)


def _instance_case(mix: tuple[str, ...], sharing: str) -> InstanceCase:
    on = sharing.removeprefix("mig=").partition(",")[0]
    return InstanceCase(f"confirm-{_spelt(mix)}-on-{on}", sharing, tuple(map(workload, mix)))


def _plain_instances(card: Gpu) -> list[MigProfile]:
    """One kind for each number of compute slices: without media engines, the least memory."""
    plain = [row for row in card.mig if re.fullmatch(r"\d+g\.\d+gb", row.name)]
    return [
        min((row for row in plain if row.compute_slices == size), key=lambda row: row.memory_mib)
        for size in sorted({row.compute_slices for row in plain})
    ]


def _rows_for_copies(rows: Sequence[MigProfile]) -> Iterator[tuple[int, MigProfile]]:
    largest_first = sorted(rows, key=lambda row: -row.compute_slices)
    yield from ((1, row) for row in largest_first[:2])
    for copies in _DEGREES:
        enough = (row for row in largest_first if row.max_instances >= copies)
        yield from ((copies, row) for row in islice(enough, 1))
