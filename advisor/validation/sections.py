"""The sections of profiles/REPORT.md, each from the same findings; empty where nothing is known."""

from statistics import mean

from advisor.validation import ablation, causes, fewer_counters, regret, targets
from advisor.validation import breakdown as parts
from advisor.validation.findings import Findings
from advisor.validation.noise import steadiness
from advisor.validation.panels import HEADINGS as PANEL_HEADINGS
from advisor.validation.panels import Panel, panel_rows
from advisor.validation.plots import plots
from advisor.validation.profiling_time import profiling_time_text
from advisor.validation.scoreboard import scoreboard
from advisor.validation.tables import HEADINGS, cells, remarks
from advisor.validation.validate import HEADINGS as RUN_HEADINGS
from advisor.validation.validate import cells as run_cells
from advisor.validation.words import markdown, percent


def accuracy_text(found: Findings) -> str:
    """One line a mode, over all degrees."""
    rows = [row for row in scoreboard(found.evaluation) if row.degree is None]
    columns = [0, *range(2, len(HEADINGS))]
    shown = [[cells(row)[column] for column in columns] for row in rows]
    return markdown([HEADINGS[column] for column in columns], shown)


def asked(found: Findings) -> str:
    """Targets beside what was reached."""
    return _joined("## What was asked", markdown(targets.HEADINGS, targets.target_rows(found)))


def families(found: Findings) -> str:
    """The scoreboard: by mode, by degree, same jobs and mixes apart."""
    rows = [cells(row) for row in scoreboard(found.evaluation)]
    said = remarks(found.evaluation)
    return _joined("## Families never seen", markdown(HEADINGS, rows), *said)


def without(found: Findings) -> str:
    """What each part of a profile and each term of the physics buys."""
    table = markdown(ablation.HEADINGS, ablation.ablation_rows(found.ablations))
    cost = profiling_time_text(found.profiles.values())
    return _joined(
        "## Without a part",
        table,
        "MAPE of the same jobs, families left out, if the model had not this part: columns of the "
        "regression that a part of the profile makes possible, then terms of the replay, then the "
        "regression itself. Nothing else is tuned anew.",
        *([cost] if cost else []),
    )


def pictures(found: Findings) -> str:
    """Links to the plots, which `plots` draws."""
    links = (
        f"![{name.removesuffix('.svg').replace('-', ' ')}](plots/{name})"
        for name in plots(found.evaluation)
    )
    return _joined("## Pictures", *links)


def intervals(found: Findings) -> str:
    """Coverage with its own uncertainty."""
    rows = parts.coverage_rows(found.evaluation)
    if not rows:
        return ""
    holds = [row[-1] for row in rows if row[1] != "all"]
    verdict = (
        f"For {holds.count('yes')} of {len(holds)} numbers of jobs the range contains 90 %. It is "
        "that of 2000 draws of families with replacement, since jobs of one family err alike."
    )
    return _joined("## Do intervals hold?", markdown(parts.COVERAGE_HEADINGS, rows), verdict)


def fewer(found: Findings) -> str:
    """How good answers are without traces, GPM counters and probe."""
    whole, bare = found.evaluation.runs, found.bare
    return _joined(
        "## With what nvidia-smi shows and no more",
        markdown(fewer_counters.HEADINGS, fewer_counters.fewer_rows(whole, bare)),
        *fewer_counters.widening(whole, bare),
        "The same runs, predicted from profiles of the H200 of which all but pace, utilisation, "
        "power and memory was taken away; no GPU without GPM was measured. GRACT stands for the "
        "driver's utilisation.",
    )


def noise(found: Findings) -> str:
    """What two runs of the same jobs differ by, and what the error has beyond it."""
    rows = parts.noise_rows(found.evaluation)
    if not rows:
        return ""
    steady = steadiness(found.evaluation.repeats)
    return _joined(
        "## Noise, and error beyond it",
        markdown(parts.NOISE_HEADINGS, rows),
        "Runs were repeated with fresh workers. The noise floor is the median absolute difference "
        "of a job between the two. Excess error is the root of error RMSE^2 - noise RMSE^2, both "
        "over the runs that were repeated. A difference of two runs holds the noise of both; the "
        "last column takes away that of one only.",
        f"{steady.steady} of {steady.workloads} workloads that were run twice repeat within 5 % "
        "in the median.",
    )


def breakdown(found: Findings) -> str:
    """By family, and by how busy a job alone keeps the GPU."""
    return _joined(
        "## By family",
        markdown(parts.FAMILY_HEADINGS, parts.family_rows(found.evaluation)),
        "## By how busy a job alone keeps the GPU",
        markdown(parts.BUSY_HEADINGS, parts.busy_rows(found.evaluation)),
    )


def worst(found: Findings) -> str:
    """The worst cases, and what the records say of them."""
    rows = causes.worst_rows(found.evaluation)
    return _joined("## The ten worst cases", markdown(causes.HEADINGS, rows))


def choices(found: Findings) -> str:
    """Regret of every way to choose, on panels and on sets drawn in several modes."""
    said = []
    kinds = {
        "run under several plans to choose from": regret.choices(found.evaluation),
        "drawn in several modes": regret.drawn_choices(found.evaluation),
    }
    for kind, sets in kinds.items():
        if sets:
            rows = regret.regret_rows(sets, found.profiles)
            said += [f"Job sets {kind}: {len(sets)}.", markdown(regret.HEADINGS, rows)]
            said += [_by_degree(sets)]
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


def _by_degree(sets: tuple[Panel, ...]) -> str:
    degrees = sorted({len(panel.names) for panel in sets})
    rows = []
    for degree in degrees:
        lost = [panel.regret for panel in sets if len(panel.names) == degree]
        rows.append((str(degree), str(len(lost)), percent(mean(lost)), percent(max(lost))))
    return markdown(("jobs at once", "job sets", "mean regret of this model", "worst"), rows)


def advice_summary(found: Findings) -> str:
    """How close the runs of advice came to their predictions, and what choices gave away."""
    sets = regret.choices(found.evaluation)
    if not sets:
        return _came_true(found)
    rows = regret.regret_rows(sets, found.profiles)
    how_many = f"Job sets that ran in several ways: {len(sets)}."
    return _joined(_came_true(found), how_many, markdown(regret.HEADINGS, rows))


def _came_true(found: Findings) -> str:
    shared = [run for run in found.validation if len(run.jobs) > 1]
    if not shared:
        return "No advice has been run yet."
    jobs = [job for run in found.validation for job in run.jobs]
    inside = sum(job.inside for job in jobs)
    off = mean(abs(run.predicted_speedup / run.measured_speedup - 1) for run in shared)
    return (
        f"{len(shared)} runs of job sets under several plans: {percent(off)} mean error of the "
        f"throughput; {inside} of "
        f"{len(jobs)} measured steps ({percent(inside / len(jobs))}) lie inside their 90 % "
        "intervals."
    )


def advice(found: Findings) -> str:
    """One line a plan that was run, then one for each job that its interval did not hold."""
    said = ["## Job sets run under several plans", _came_true(found)]
    if found.validation:
        said += [markdown(PANEL_HEADINGS, panel_rows(found.validation))]
    runs = [(run, job) for run in found.validation for job in run.jobs if not job.inside]
    if runs:
        said += ["## Jobs of it outside their 90 % intervals"]
        said += [markdown(RUN_HEADINGS, [run_cells(run, job) for run, job in runs])]
    return _joined(*said)


def _joined(*said: str) -> str:
    return "\n\n".join(said)
