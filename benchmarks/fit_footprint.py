"""Fits what processes hold beyond what their tensors ask for, and scores it family by family.

    python benchmarks/fit_footprint.py

reads the shipped profiles and runs, makes a dry run of each workload (needs torch, no GPU; some
seconds each), prints how far estimates are off and writes ``advisor/zoo/overhead.json``.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from advisor.hardware.catalogue import gpu
from advisor.workload.measured import Memory
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import load_profiles
from advisor.workload.stored_runs import load_runs
from advisor.workload.writing import write_whole
from advisor.zoo.allocation_recording import recorded
from advisor.zoo.footprint import replayed, workspace_mib
from advisor.zoo.overhead import DATA
from research import overhead_fit


def processes(profile: Profile, runs: Iterable[Run]) -> list[Memory]:
    """Memory of all processes of the workload on a whole GPU, alone or beside others.

    Those on cards made smaller were short of it, and limits make contexts smaller.
    """
    sms = gpu(profile.gpu).sms
    beside = [
        tenant.memory
        for run in runs if run.purpose != "memory"
        for tenant in run.tenants
        if tenant.workload == profile.workload and tenant.sms == sms and tenant.memory
    ]  # fmt: skip
    return [each for each in [profile.memory, *beside] if each.context_mib]


def measured(profile: Profile, held: Sequence[Memory]) -> overhead_fit.MeasuredMemory:
    """The medians of what processes of the workload held, beside a dry run."""
    recording = recorded(profile.workload)
    dry = replayed(recording, workspace_mib(gpu(profile.gpu)))
    return overhead_fit.MeasuredMemory(
        workload=profile.name,
        family=profile.workload.family,
        execution=profile.workload.execution,
        dry_mib=dry.reserved_mib,
        convolves=recording.convolves,
        reserved_mib=median(each.reserved_mib for each in held),
        context_mib=median(each.context_mib or 0.0 for each in held),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="h200-141gb")
    parser.add_argument("--out", type=Path, default=Path("advisor/zoo") / DATA)
    asked = parser.parse_args()
    runs = load_runs(asked.gpu)
    each_held = [(each, processes(each, runs)) for each in load_profiles(asked.gpu).values()]
    rows = [measured(profile, held) for profile, held in each_held if held]
    fit = overhead_fit.fitted(asked.gpu, rows)
    for each in sorted(fit.estimates, key=lambda estimate: abs(estimate.error)):
        print(f"{each.workload:48} {each.measured_mib:9.0f} {each.error:+7.1%}")
    print(f"{len(rows)} workloads, {len(fit.families)} families: MAPE {fit.mape:.1%}")
    print(fit.overhead, f"sigma {fit.sigma:.3f}")
    write_whole(asked.out, overhead_fit.fitted_text([fit]))


if __name__ == "__main__":
    main()
