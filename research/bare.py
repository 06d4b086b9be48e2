"""Errors and choices for profiles without a trace: the numbers of nvidia-smi and of DCGM.

    python -m research.bare

fits the model of such profiles again, for each family without its runs, and prints the tables in
five minutes: it replays nothing. `make report` writes them with the models of its own evaluation.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

from advisor.hardware.gpus import gpu
from advisor.hardware.machine import Counters
from advisor.learn.fit import runs_by_mode
from advisor.learn.observations import ObservedRun, shared_runs
from advisor.learn.regression import fit_utilisation
from advisor.learn.scores import (
    JobComparison,
    RunComparison,
    compared_run,
    profiles_of,
    sharing_of,
)
from advisor.prediction.cache import in_processes
from advisor.prediction.model import Model, load_model
from advisor.prediction.prediction import Interval
from advisor.prediction.predictor import Predictor
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode, Mps, Naive
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import model_path
from research.evaluate import Evaluation, Selection, families_of, select
from research.files import PROFILES, measured
from research.regret import MODEL, Panel, choices, panels
from research.score_tables import MODE_WORDS, markdown
from research.steps import joined

ON_ALL = "all"
GPUS = ("h200-141gb", "h100-sxm-80gb")
# A sharing is better than another one if it is by more than this.
_CLEARLY = 0.03
# The limits of a bare probe.
_LIMITS = (28.0, 50.0)


def by_driver(profile: Profile, *, power: bool = True) -> Profile:
    """Return `profile` as nvidia-smi shows the job: step, utilisation, memory and power."""
    counters = profile.counters
    if counters is None:
        return replace(_bare(profile), gpu_s=None)
    seen = Counters(
        source="nvml", gract=counters.gract, memory_utilization=counters.memory_utilization
    )
    return replace(
        _bare(profile),
        counters=seen,
        power_w=profile.power_w if power else None,
        gpu_s=seen.gract * profile.step_s,
    )


def by_dcgm(profile: Profile) -> Profile:
    """Return the same with the counters of SMs, tensor cores and DRAM."""
    counters = profile.counters and replace(profile.counters, source="dcgm")
    return replace(by_driver(profile), counters=counters)


def under_limits(profile: Profile) -> Profile:
    """Return `profile` as nvidia-smi shows the job, with its steps alone under two limits."""
    probe = profile.mps and replace(
        profile.mps, limited=tuple(e for e in profile.mps.limited if e.limit_pct in _LIMITS)
    )
    return replace(by_driver(profile), mps=probe)


def _bare(profile: Profile) -> Profile:
    return replace(
        profile,
        host_s=None,
        host_cpu_share=None,
        energy_j=None,
        idle_power_w=None,
        mps=None,
        trace=None,
        host_check_s=None,
        host=None,
        sm_exponent=None,
        epoch_end=None,
    )


BY_DRIVER, BY_DCGM = "nvidia-smi", "nvidia-smi and DCGM"
WITH_LIMITS = "nvidia-smi, steps under two limits"
KNOWN: Mapping[str, Callable[[Profile], Profile]] = {
    "nvidia-smi without power": lambda profile: by_driver(profile, power=False),
    BY_DRIVER: by_driver,
    BY_DCGM: by_dcgm,
    WITH_LIMITS: under_limits,
}
"""How to cut a full profile to the numbers that are known of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of steps on one GPU, as shares of the measured step.

    Attributes:
        known: What is known of the jobs, such as one of `KNOWN`.
        group: The sharing or the slice, in words.
        inside: Share of the measured steps in their 90 % intervals.
        width: Median of p95 over p05.
    """

    known: str
    gpu: str
    group: str
    n: int
    mape: float
    median: float
    inside: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPlans:
    """Regret of the first plan, as shares of the best measured throughput.

    Attributes:
        among: Sharings to choose from, in words.
        mean: Regret of the way that `recommend` puts first; `always_mps` that of MPS.
        slicing_best: Sets in which time-slicing is best by more than 3 %.
        slicing_first: Those of them in which it comes first.
    """

    known: str
    gpu: str
    among: str
    sets: int
    mean: float
    worst: float
    always_mps: float
    slicing_best: int
    slicing_first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BareScores:
    """All scores of bare profiles."""

    errors: tuple[Errors, ...]
    choices: tuple[FirstPlans, ...]


_Score = TypeVar("_Score", Errors, FirstPlans)


def matching(scores: Iterable[_Score], **wanted: str) -> list[_Score]:
    """Return those of `scores` whose fields have the values `wanted`."""
    return [e for e in scores if all(getattr(e, name) == v for name, v in wanted.items())]


def bare_scores(
    some: Sequence[Selection], models: Mapping[str, Model], processes: int = 1
) -> BareScores:
    """Score bare profiles of some GPUs by `models`, each without the family it is named by."""
    tasks = [(selection, known) for selection in some for known in KNOWN]
    if processes == 1:
        scored = [_scored(*task, models) for task in tasks]
    else:
        with in_processes(_scored_here, tasks, processes, _begin, (models,)) as results:
            scored = list(results)
    chosen = [each for _, choices_of_task in scored for each in choices_of_task]
    same = [matching(chosen, known=known, among=among) for known in KNOWN for among in _AMONG]
    pooled = [_pooled(parts) for parts in same if parts]
    return BareScores(
        errors=tuple(each for errors, _ in scored for each in errors),
        choices=(*pooled, *matching(chosen, among=OF_A_PANEL)),
    )


_here: list[Mapping[str, Model]] = []
"""Models of a process, sent once and not with each task."""


def _begin(models: Mapping[str, Model]) -> None:
    _here.append(models)


def _scored_here(task: tuple[Selection, str]) -> tuple[list[Errors], list[FirstPlans]]:
    return _scored(*task, _here[0])


def _scored(
    selection: Selection, known: str, models: Mapping[str, Model]
) -> tuple[list[Errors], list[FirstPlans]]:
    evaluation = rescored(selection, models, KNOWN[known])
    return _errors(known, evaluation), _choices(known, evaluation)


def selections(folder: Path) -> list[Selection]:
    """Return the runs of the GPU of `folder`, and of the others of `GPUS` next to it."""
    others = [folder.parent / key for key in GPUS if key != folder.name]
    return [select(*measured(each), gpu(each.name)) for each in (folder, *others) if each.is_dir()]


def rescored(
    chosen: Selection, models: Mapping[str, Model], cut: Callable[[Profile], Profile]
) -> Evaluation:
    """Predict the drawn runs and panels from profiles that were `cut`, without their families."""
    cut_profiles = {name: cut(profile) for name, profile in chosen.profiles.items()}
    predictors = {family: Predictor(chosen.gpu, model) for family, model in models.items()}
    predicted: dict[tuple[Any, ...], list[Interval]] = {}  # many runs have the same jobs

    def compared(run: Run) -> RunComparison:
        profiles, sharing, steps_s = profiles_of(run, cut_profiles), sharing_of(run), []
        for place, profile in enumerate(profiles):
            family = profile.workload.family
            key = family, run.names, str(sharing)
            if key not in predicted:
                jobs = predictors[family].predict(profiles, sharing).jobs
                predicted[key] = [job.step_s for job in jobs]
            steps_s.append(predicted[key][place])
        return compared_run(run, profiles, steps_s)

    return Evaluation(
        chosen=replace(chosen, profiles=cut_profiles),
        models=models,
        runs=tuple(map(compared, chosen.scored)),
        advice=tuple(map(compared, chosen.advice)),
    )


def models_left_out(selection: Selection, model: Model) -> dict[str, Model]:
    """Return `model` by family, its part for bare profiles fitted without that family's runs."""
    runs = shared_runs(selection.profiles, selection.runs, selection.gpu)

    def without(family: str) -> Model:
        kept: list[ObservedRun] = [run for run in runs if family not in run.families]
        return replace(model, capacity=fit_utilisation(runs_by_mode(kept)))

    return {family: without(family) for family in families_of(selection.predicted)}


def _errors(known: str, evaluation: Evaluation) -> list[Errors]:
    jobs: dict[Mode, list[JobComparison]] = defaultdict(list)
    for run in evaluation.runs:
        jobs[sharing_of(run.run).mode].extend(run.jobs)
    return [
        errors_of(known, evaluation.chosen.gpu.key, MODE_WORDS[mode], jobs[mode])
        for mode in SHARED_MODES
        if mode in jobs
    ]


def errors_of(known: str, gpu_key: str, group: str, jobs: Sequence[JobComparison]) -> Errors:
    """Summarise the errors of `jobs`."""
    return Errors(
        known=known,
        gpu=gpu_key,
        group=group,
        n=len(jobs),
        mape=fmean(abs(job.error) for job in jobs),
        median=median(abs(job.error) for job in jobs),
        inside=fmean(job.inside for job in jobs),
        width=median(job.predicted_s.p95 / job.predicted_s.p05 for job in jobs),
    )


OF_BOTH, OF_THREE, OF_A_PANEL = "time-slicing, MPS", "and limits", "all ways of a panel"
_AMONG: Mapping[str, Set[Mode]] = {
    OF_BOTH: {"naive", "mps"},
    OF_THREE: {"naive", "mps", "mps-limits"},
}
"""Which sharings to choose from, of those in which the same jobs ran on one host."""


def _choices(known: str, evaluation: Evaluation) -> list[FirstPlans]:
    by_host = _panels_by_host(evaluation)
    sets = {
        among: [
            _only(panel, modes)
            for panel in by_host
            if modes <= {option.sharing.mode for option in panel.options}
        ]
        for among, modes in _AMONG.items()
    }
    sets[OF_A_PANEL] = [
        panel for panel in choices(evaluation) if Mps() in {e.sharing for e in panel.options}
    ]
    return [
        first_plans(known, evaluation.chosen.gpu.key, among, own)
        for among, own in sets.items()
        if own
    ]


def _panels_by_host(evaluation: Evaluation) -> list[Panel]:
    """Job sets, drawn ones and those to choose for, with the ways in which they ran on one host."""
    runs: dict[str, list[RunComparison]] = defaultdict(list)
    for run in (*evaluation.runs, *evaluation.advice):
        runs[evaluation.chosen.hosts[run.run.id]].append(run)
    return [panel for own in runs.values() for panel in panels(own)]


def _only(panel: Panel, modes: Set[Mode]) -> Panel:
    return replace(panel, options=tuple(e for e in panel.options if e.sharing.mode in modes))


def first_plans(known: str, gpu_key: str, among: str, sets: Sequence[Panel]) -> FirstPlans:
    """Judge the first plans for `sets`, each of which ran under MPS too."""
    lost = [panel.regret_by(MODEL) or 0.0 for panel in sets]
    others = [[e for e in panel.options if e.sharing != Naive()] for panel in sets]
    slicing = [
        share
        for share, panel, other in zip(lost, sets, others, strict=True)
        if min(panel.regret_among([each]) for each in other) > _CLEARLY
    ]
    return FirstPlans(
        known=known,
        gpu=gpu_key,
        among=among,
        sets=len(sets),
        mean=fmean(lost),
        worst=max(lost),
        always_mps=fmean(panel.regret_of(Mps()) for panel in sets),
        slicing_best=len(slicing),
        slicing_first=sum(share == 0 for share in slicing),
    )


def _pooled(parts: Sequence[FirstPlans]) -> FirstPlans:
    """The choices on several GPUs as one."""
    sets = sum(each.sets for each in parts)
    return replace(
        parts[0],
        gpu=ON_ALL,
        sets=sets,
        mean=sum(each.sets * each.mean for each in parts) / sets,
        worst=max(each.worst for each in parts),
        always_mps=sum(each.sets * each.always_mps for each in parts) / sets,
        slicing_best=sum(each.slicing_best for each in parts),
        slicing_first=sum(each.slicing_first for each in parts),
    )


def bare_section(scores: BareScores) -> str:
    """Return the section of the report."""
    errors = [
        (
            each.gpu,
            each.group,
            each.known,
            str(each.n),
            *map(percent, (each.mape, each.median, each.inside)),
            f"{each.width:.2f}",
        )
        for each in sorted(scores.errors, key=lambda e: (GPUS.index(e.gpu), e.group))
    ]
    chosen = [
        (
            each.gpu,
            each.among,
            each.known,
            str(each.sets),
            *map(percent, (each.mean, each.worst, each.always_mps)),
            f"{each.slicing_first} of {each.slicing_best}",
        )
        for each in sorted(scores.choices, key=lambda e: (e.gpu, e.among))
    ]
    return joined(
        "## Profiles of bare numbers",
        "The same runs, predicted from profiles that we cut to what nvidia-smi and DCGM show. The "
        "counters were read by GPM, which has the same ones. Drawn runs:",
        markdown(ERROR_HEADINGS, errors),
        "The plan that `recommend` puts first, among the ways in which the same jobs ran. The last "
        "column counts the sets in which time-slicing was best by over 3 %:",
        markdown(_CHOICE_HEADINGS, chosen),
    )


ERROR_HEADINGS = (
    "GPU",
    "sharing",
    "known",
    "n",
    "MAPE",
    "median",
    "in 90 % interval",
    "p95/p05, median",
)
_CHOICE_HEADINGS = (
    "GPU",
    "ways",
    "known",
    "sets",
    "regret",
    "worst",
    "always MPS",
    "time-slicing first",
)


def main() -> None:
    """Print the tables, with the model of bare profiles fitted again."""
    own, *others = selections(PROFILES / GPUS[0])
    models = models_left_out(own, load_model(model_path()))
    print(bare_section(bare_scores([own, *others], models)))


if __name__ == "__main__":
    main()
