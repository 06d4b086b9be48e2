"""The sections of profiles/REPORT.md on step times; empty if nothing is known."""

from advisor.validate import regret
from advisor.validate.regret import Choices
from advisor.validate.score_tables import HEADINGS, cells, remarks
from advisor.validate.score_words import markdown, percent
from research import ablation, advice_score, breakdown, causes, fewer_counters, targets
from research.figures import Figures
from research.plots import plots
from research.profiling_time import profiling_time_text


def accuracy_text(found: Figures) -> str:
    """One line a mode, over all degrees."""
    columns = [0, *range(2, len(HEADINGS))]
    shown = [[cells(row)[column] for column in columns] for row in found.scores.pooled]
    return markdown([HEADINGS[column] for column in columns], shown)


def asked(found: Figures) -> str:
    """Targets and what was reached."""
    rows = targets.target_rows(found.targets, found.scores)
    return _joined("## What was asked", markdown(targets.HEADINGS, rows))


def families(found: Figures) -> str:
    """The scoreboard: by mode, by degree, same jobs and mixes apart."""
    rows = [cells(row) for row in found.scores.rows]
    said = remarks(found.scores)
    return _joined("## Families never seen", markdown(HEADINGS, rows), *said)


def without(found: Figures) -> str:
    """What each part of a profile and each term of the physics buys."""
    table = markdown(ablation.HEADINGS, ablation.ablation_rows(found.ablations))
    cost = found.profiling and profiling_time_text(found.profiling)
    return _joined(
        "## Without a part",
        table,
        "MAPE of the same jobs, families left out, if the model had not this part: columns of the "
        "regression that a part of the profile makes possible, then terms of the replay, then the "
        "regression itself. Nothing else is tuned anew.",
        *([cost] if cost else []),
    )


def pictures(found: Figures) -> str:
    """Links to the plots, which `plots` draws."""
    links = (
        f"![{name.removesuffix('.svg').replace('-', ' ')}](plots/{name})"
        for name in plots(found.points, found.scores.rows)
    )
    return _joined("## Pictures", *links)


def intervals(found: Figures) -> str:
    """Coverage with its own uncertainty."""
    rows = breakdown.coverage_rows(found.scores.rows)
    if not rows:
        return ""
    holds = [row[-1] for row in rows if row[1] != "all"]
    verdict = (
        f"For {holds.count('yes')} of {len(holds)} numbers of jobs the range contains 90 %. It is "
        "that of 2000 draws of families with replacement, since jobs of one family err alike."
    )
    return _joined("## Do intervals hold?", markdown(breakdown.COVERAGE_HEADINGS, rows), verdict)


def fewer(found: Figures) -> str:
    """How good answers are without traces, GPM counters and probe."""
    return _joined(
        "## With what nvidia-smi shows and no more",
        markdown(fewer_counters.HEADINGS, fewer_counters.fewer_rows(found.seen)),
        *fewer_counters.widening(found.seen),
        "The same runs, predicted from profiles of the H200 of which all but pace, utilisation, "
        "power and memory was taken away; no GPU without GPM was measured. GRACT stands for the "
        "driver's utilisation.",
    )


def noise(found: Figures) -> str:
    """What two runs of the same jobs differ by, and what the error has beyond it."""
    rows = breakdown.noise_rows(found.noise)
    if not rows:
        return ""
    steady = found.steadiness
    return _joined(
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
    return _joined(
        "## By family",
        markdown(breakdown.FAMILY_HEADINGS, breakdown.group_rows(found.families)),
        "## By how busy a job alone keeps the GPU",
        markdown(breakdown.BUSY_HEADINGS, breakdown.group_rows(found.busy)),
    )


def worst(found: Figures) -> str:
    """The worst cases, and what the records say of them."""
    rows = causes.worst_rows(found.worst)
    return _joined("## The ten worst cases", markdown(causes.HEADINGS, rows))


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
            said += [markdown(regret.HEADINGS, regret.regret_rows(judged.rules))]
            said += [_by_degree(judged)]
    if not said:
        return ""
    return _joined(
        "## What choices give away",
        "Regret is the share of the best measured throughput that a choice gives away. A sharing "
        "that was run several times counts with the mean; where a rule finds several equally "
        "good, the mean over them counts. Every job is predicted by a model that saw no run with "
        "its family, so none of the set's own.",
        *said,
    )


def _by_degree(judged: Choices) -> str:
    rows = [
        (str(each.degree), str(each.regret.n), percent(each.regret.mean),
         percent(each.regret.worst))
        for each in judged.by_degree
    ]  # fmt: skip
    return markdown(("jobs at once", "job sets", "mean regret of this model", "worst"), rows)


def advice_summary(found: Figures) -> str:
    """How close the runs of advice came to their predictions, and what choices gave away."""
    came_true, judged = advice_score.came_true(found.advice), found.scores.chosen
    if not judged.sets:
        return came_true
    how_many = f"Job sets that ran in several ways: {judged.sets}."
    rows = regret.regret_rows(judged.rules)
    return _joined(came_true, how_many, markdown(regret.HEADINGS, rows))


def _joined(*said: str) -> str:
    return "\n\n".join(said)
