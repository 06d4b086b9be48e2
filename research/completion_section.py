"""The section of profiles/REPORT.md on whole jobs, from the first step to the last."""

from collections.abc import Iterator

from advisor.english import counted, is_or_are
from advisor.validate.score_tables import (
    MODE_WORDS,
    REGRET_HEADINGS,
    RULE_WORDS,
    markdown,
    percent,
    regret_rows,
)
from research.completion_score import MODES, RECOMMENDED, SIMULATED, WholeJobs

HEADINGS = (
    "sharing", "runs", "jobs", "makespan, mean error", "worst", "completion times, mean error",
    "P90", "in 90 % interval", "makespan, family unseen", "completion times, family unseen",
)  # fmt: skip

_WORDS = {
    **MODE_WORDS,
    **RULE_WORDS,
    "serial": "one after another",
    "phases": "in phases",
    RECOMMENDED: "recommended beforehand",
    SIMULATED: "shortest simulated of those run",
}


def section(found: WholeJobs | None) -> str:
    """Of profiles/REPORT.md; empty if no whole jobs were run."""
    if found is None:
        return ""
    return "\n\n".join([
        "## Whole jobs, from the first step to the last",
        "Each job had its own number of steps to do and left when it was done; what is compared is "
        "when. The simulator was given the jobs' profiles as on the cores that they had, and their "
        "steps, and no time that was measured of them together. That processes start and load is "
        "in neither. No model was fitted to these runs; for the last two columns none saw any run "
        "with the job's family.",
        markdown(HEADINGS, finish_rows(found)),
        *_hosts(found),
        *_pauses(found),
        *_chosen(found),
        *_mixes(found),
    ])  # fmt: skip


def finish_rows(found: WholeJobs) -> list[tuple[str, ...]]:
    """A line under `HEADINGS` for each mode in which whole jobs ran."""
    rows = []
    for mode in MODES:
        if of_mode := found.modes.get(mode):
            strange = found.unseen.get(mode)
            shares = (
                of_mode.makespan, of_mode.worst_makespan, of_mode.completion, of_mode.p90,
                of_mode.inside, strange.makespan if strange else None,
                strange.completion if strange else None,
            )  # fmt: skip
            counts = (_WORDS[mode], str(of_mode.runs), str(of_mode.jobs))
            rows.append((*counts, *map(percent, shares)))
    return rows


def _hosts(found: WholeJobs) -> Iterator[str]:
    """How much of the error is of jobs that wait for their hosts, and how slow these were."""
    if hosts := found.hosts:
        low, middle, high = hosts.slower
        yield (
            f"Jobs that fill the GPU alone ended {percent(hosts.gpu_bound)} off in the mean, those "
            f"that wait for their hosts {percent(hosts.host_bound)}: cores took {middle:.1f} times "
            f"as long for the same work as when jobs were profiled, and between {low:.1f} and "
            f"{high:.1f} times as long in nine of ten."
        )


def _pauses(found: WholeJobs) -> Iterator[str]:
    """Measured and simulated seconds to start or stop MPS between groups."""
    if pauses := found.pauses:
        yield (
            f"Between groups MPS was started or stopped {pauses.n} times, which took "
            f"{pauses.median_s:.2f} s in the median; the simulator takes {pauses.simulated_s:.2f} "
            "s for it."
        )


def _chosen(found: WholeJobs) -> Iterator[str]:
    if sizes := found.set_sizes:
        yield (
            f"{len(sizes)} job sets of {min(sizes)} to {max(sizes)} jobs ran "
            "in several ways that were fixed before anything was predicted. Regret is the share "
            "of the speed of the fastest that a choice gives away."
        )
        yield markdown(REGRET_HEADINGS, regret_rows(found.rules, _WORDS))


def _mixes(found: WholeJobs) -> Iterator[str]:
    """The errors of the mixes that ran to be simulated, and not to be chosen from."""
    errors = [
        f"{_WORDS[mode]} {percent(done.makespan)} and {percent(done.completion)}"
        for mode, done in found.mixes.items()
    ]
    if errors and found.set_sizes:
        runs = sum(done.runs for done in found.mixes.values())
        yield (
            f"In the {counted(runs, 'run')} that {is_or_are(runs)} of no such set, makespan and "
            f"completion times are off by: {', '.join(errors)}."
        )
