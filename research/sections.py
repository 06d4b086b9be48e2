"""The sections of profiles/REPORT.md on step times; empty if nothing is known."""

from advisor.validate.regret import MODEL, Choices
from advisor.validate.score_row import ALL
from advisor.validate.score_tables import (
    CHOICE_HEADINGS,
    HEADINGS,
    choice_rows,
    markdown,
    percent,
    remarks,
    score_cells,
)
from research import ablation, breakdown, causes, fewer_counters, targets
from research.figures import Figures
from research.plots import plots
from research.profiling_time import profiling_time_text


def asked(found: Figures) -> str:
    """Targets and what was reached."""
    rows = targets.target_rows(found.targets, found.scores.chosen.sets)
    return joined("## What was asked", markdown(targets.HEADINGS, rows))


def families(found: Figures) -> str:
    """The scoreboard: by mode, by degree, same jobs and mixes apart; then by host."""
    scores = found.scores
    paced = [row for row in scores.pooled() if row.bound != ALL]
    rows = score_cells(scores, [*scores.by_degree, *paced])
    hosts = [
        [host, *row] for host in scores.hosts for row in score_cells(scores, scores.pooled(host))
    ]
    return joined(
        "## Families never seen",
        markdown(HEADINGS, rows),
        _WHAT_IS_SCORED,
        *remarks(scores),
        "## By host",
        markdown(("host", *HEADINGS), hosts),
        "A host is a campaign; where one ran on several processors or days, these are told apart.",
        "## What was chosen with all data in view",
        _CHOSEN_WITH_ALL_DATA,
    )


_WHAT_IS_SCORED = (
    "All drawn runs are scored, from profiles as they were measured, on whatever host and day: as "
    "users have them. Beside it stands the MAPE of the runs that recorded how fast each core was, "
    "with profiles as on those cores; nobody knows that beforehand. GPU-bound jobs keep the GPU "
    "busy for 90 % of a step alone or more. The width of an interval is a share of the predicted "
    "step."
)
_CHOSEN_WITH_ALL_DATA = (
    "Constants, the regression's kernel, the ends of intervals and their level are fitted without "
    "the family that is scored. Not so: what the model looks at; that replay goes on for four "
    "steps or 80,000 events, since a quarter of that made answers for 3 to 8 jobs under MPS 0.8 "
    "points worse and twice as much no better; the values among which constants and kernels are "
    "sought; and how far a check of a core is trusted. They were chosen by looking at errors of "
    "all families, so expect a little more on other ones."
)


def without(found: Figures) -> str:
    """What each part of a profile and each term of the physics buys."""
    table = markdown(ablation.HEADINGS, ablation.ablation_rows(found.ablations))
    cost = found.profiling and profiling_time_text(found.profiling)
    return joined(
        "## Without a part",
        table,
        "MAPE of the jobs on cores whose speed was recorded, with it known and families left out, "
        "if the model had not this part: columns of the "
        "regression that a part of the profile makes possible, then terms of the replay, then the "
        "regression itself. Nothing else is tuned anew.",
        *([cost] if cost else []),
    )


def pictures(found: Figures) -> str:
    """Links to the plots, which `plots` draws."""
    links = (
        f"![{name.removesuffix('.svg').replace('-', ' ')}](plots/{name})"
        for name in plots(found.points, found.scores.by_degree)
    )
    return joined("## Pictures", *links)


def intervals(found: Figures) -> str:
    """Coverage with its own uncertainty."""
    rows = breakdown.coverage_rows(found.scores.by_degree)
    if not rows:
        return ""
    holds = [row[-1] for row in rows if row[1] != "all"]
    verdict = (
        f"For {holds.count('yes')} of {len(holds)} numbers of jobs the range contains 90 %. It is "
        "that of 2000 draws of families with replacement, since jobs of one family err alike."
    )
    return joined("## Do intervals hold?", markdown(breakdown.COVERAGE_HEADINGS, rows), verdict)


def fewer(found: Figures) -> str:
    """How good answers are without GPM counters, without probe, and without traces."""
    return joined(
        "## With less than a whole profile",
        markdown(fewer_counters.HEADINGS, fewer_counters.fewer_rows(found.seen)),
        *fewer_counters.widening(found.seen),
        "The same runs, predicted from profiles of the H200 of which parts were taken away, in the "
        "end all but pace, utilisation, power and memory; no GPU without GPM was measured. GRACT "
        "stands for the driver's utilisation.",
    )


def noise(found: Figures) -> str:
    """What two runs of the same jobs differ by, and what the error has beyond it."""
    rows = breakdown.noise_rows(found.noise)
    if not rows:
        return ""
    steady = found.steadiness
    return joined(
        "## Noise, and error beyond it",
        markdown(breakdown.NOISE_HEADINGS, rows),
        "Runs were repeated with fresh workers. The noise floor is the median absolute difference "
        "of a job between the two. Excess error is the root of error RMSE^2 - noise RMSE^2, both "
        "over the runs that were repeated. A difference of two runs holds the noise of both; the "
        "last column takes away that of one only.",
        f"{steady.steady} of {steady.workloads} workloads that were run twice repeat within 5 % "
        "in the median.",
    )


def by_family(found: Figures) -> str:
    """By family, and by how busy a job alone keeps the GPU."""
    return joined(
        "## By family",
        markdown(breakdown.FAMILY_HEADINGS, breakdown.group_rows(found.families)),
        "## By how busy a job alone keeps the GPU",
        markdown(breakdown.BUSY_HEADINGS, breakdown.group_rows(found.busy)),
    )


def worst(found: Figures) -> str:
    """The worst cases, and what the records say of them."""
    rows = causes.worst_rows(found.worst)
    return joined("## The ten worst cases", markdown(causes.HEADINGS, rows))


def choices(found: Figures) -> str:
    """Regret of every way to choose, on panels and on sets drawn in several modes."""
    said = []
    kinds = {
        "run under several plans to choose from": found.scores.chosen,
        "drawn in several modes": found.scores.drawn,
    }
    for kind, judged in kinds.items():
        if judged.sets:
            said += [f"Job sets {kind}: {judged.sets}."]
            said += [markdown(CHOICE_HEADINGS, choice_rows(judged))]
            said += [noise_text(judged), _by_degree(judged)]
    if not said:
        return ""
    return joined(
        "## What choices give away",
        "Regret is the share of the best measured throughput that a choice gives away; choices "
        "are made from profiles as they were measured. Worst beyond the noise is less what two "
        "runs of the same jobs differ by; in clear sets the best way leads the next by more. "
        "A sharing that was run several times counts with the mean; where a rule finds "
        "several equally good, the mean over them counts. Every job is predicted by a model that "
        "saw no run with its family, so none of the set's own.",
        *said,
    )


def _by_degree(judged: Choices) -> str:
    rows = [
        (str(each.degree), str(each.regret.n), percent(each.regret.mean),
         percent(each.regret.worst))
        for each in judged.by_degree
    ]  # fmt: skip
    return markdown(("jobs at once", "job sets", "mean regret of this model", "worst"), rows)


def noise_text(judged: Choices) -> str:
    if judged.noise is None:
        return "None was run twice, so the noise is not known."
    return (
        f"Two runs of the same plan differ by {percent(judged.noise)} in throughput in the "
        f"median. The best and the worst way differ by more in {judged.differ} of {judged.sets} "
        f"sets, the best and the next in {judged.clear[MODEL].n}: the clear ones."
    )


def joined(*said: str) -> str:
    return "\n\n".join(said)
