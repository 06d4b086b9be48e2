"""The basis of the intervals of a recommendation: the plan, the jobs' descriptions, the host."""

from collections.abc import Iterator

from advisor.errors import counted, with_article
from advisor.plan.values import Recommendation
from advisor.report.forecast import NOT_CONFIRMED, basis
from advisor.report.format import shortened
from advisor.report.recommendation import caveats
from advisor.workload.profile import Profile

_MOST_NAMED = 3  # jobs; more are counted


def basis_sentences(advised: Recommendation) -> Iterator[str]:
    """Yield the basis of the intervals, what to know of the best plan, and what was left out."""
    yield "An interval is meant to contain nine of ten measurements."
    mixes = {on.prediction.gpu: on.prediction for on in advised.best.gpus}.values()
    yield from (f"The best plan is {basis(mix)}." for mix in mixes)
    described: dict[str, list[str]] = {}
    for name, profile in {job.name: job.profile for job in advised.jobs}.items():
        described.setdefault(description(profile), []).append(name)
    for what, names in described.items():
        few = len(names) <= _MOST_NAMED
        yield f"{', '.join(names) if few else counted(len(names), 'job')}: {what}."
    if any(mix.wide_because for mix in mixes) and any(
        not job.profile.trace for job in advised.jobs
    ):
        yield "Intervals are wide without kernels, which `advisor profile` measures."
    yield from (each for each in caveats(advised) if each != f"It is {NOT_CONFIRMED}.")
    yield from (f"Left out: {shortened(each.sharing)}: {each.why}." for each in advised.left_out)


def description(profile: Profile) -> str:
    """Return what a profile has of its job, in words."""
    where = with_article(profile.estimated_from or profile.gpu)
    if profile.trace is not None:
        return f"measured kernel by kernel, alone on {where}"
    if profile.provenance is not None:
        return f"steps and counters were measured, without kernels, alone on {where}"
    if profile.workload.source == "duration":
        return "only the duration is known"
    counters = profile.counters
    if counters is None:
        return "the step was read in a log, and GPU utilization is unknown"
    read = "the counters of DCGM" if counters.source == "dcgm" else "GPU utilization"
    return f"the step and {read} were read while it ran"
