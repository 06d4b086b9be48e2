"""Fits what processes hold beyond what their tensors ask for, and scores it family by family.

    python benchmarks/fit_footprint.py

reads the shipped profiles, makes a dry run of each workload (needs torch, no GPU; some seconds
each), prints how far estimates are off and writes ``advisor/training/overhead.json``.
"""

import argparse
from pathlib import Path

from advisor.gpu.catalogue import gpu
from advisor.training import overhead
from advisor.training.dry_step import recorded, replayed
from advisor.training.footprint import workspace_mib
from advisor.workload.profile import Profile
from advisor.workload.store import load_profiles
from advisor.workload.writing import write_whole


def measured(profile: Profile) -> overhead.Measured:
    """The profile beside a dry run."""
    recording = recorded(profile.workload)
    dry = replayed(recording, workspace_mib(gpu(profile.gpu)))
    return overhead.Measured(
        workload=profile.name,
        family=profile.workload.family,
        dry_mib=dry.reserved_mib,
        convolves=recording.convolves,
        reserved_mib=profile.memory.reserved_mib,
        context_mib=profile.memory.context_mib or 0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="h200-141gb")
    parser.add_argument("--out", type=Path, default=Path("advisor/training") / overhead.DATA)
    asked = parser.parse_args()
    profiles = load_profiles(asked.gpu).values()
    # A compiled or captured step is estimated as if it were not, and must not teach.
    rows = [
        measured(each) for each in profiles
        if each.workload.execution == "eager" and each.memory.context_mib
    ]  # fmt: skip
    fit = overhead.fitted(asked.gpu, rows)
    for each in sorted(fit.estimates, key=lambda estimate: abs(estimate.error)):
        print(f"{each.workload:48} {each.measured_mib:9.0f} {each.error:+7.1%}")
    print(f"{len(rows)} workloads, {len(fit.families)} families: MAPE {fit.mape:.1%}")
    print(fit.overhead, f"sigma {fit.sigma:.3f}")
    write_whole(asked.out, overhead.fitted_text([fit]))


if __name__ == "__main__":
    main()
