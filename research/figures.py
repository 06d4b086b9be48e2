"""All figures of one GPU in README.md, docs/, profiles/REPORT.md, the data card and the plots."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.sharing import Mode
from advisor.validate.noise_and_coverage import Noise, RepeatSummary, steadiness
from advisor.validate.scoreboard import Scores, scores_of
from research.ablation import Ablated
from research.advice_score import Advice, advice_of
from research.another_host import Elsewhere, elsewhere
from research.breakdown import ScoredGroup, by_busy_share, by_family, noise_by_mode
from research.campaign_pace import Sitting, sittings
from research.causes import Worst, worst
from research.choices_by_host import HostChoices, choices_by_host
from research.completion_score import WholeJobs, whole_jobs
from research.cross_talk import CrossTalk, cross_talk
from research.data_figures import DataFigures, data_figures
from research.error_budget import Budget
from research.fewer_counters import Seen, seen
from research.findings import Findings
from research.gpu_left_out import GpuLeftOut
from research.memory_score import MemoryScore
from research.plot_figures import Points, points
from research.power_score import PowerRow
from research.profiling_time import ProfilingTime, profiling_time
from research.recommended import Recommended, recommended
from research.set_aside import SetAside
from research.shortfall import budgets_of
from research.targets import Target, targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What ``profiles/<gpu>/evaluation.json`` holds.

    Units are in the names: ``_s`` seconds, ``_mib`` MiB. Errors and all that is called a share are
    0..1, throughput is the sum of solo over shared steps, and None means not measured. Each part
    says at its own type what it means.

    Attributes:
        schema: Version of this form.
        data: What was measured, on what, how often.
        scores: Errors of steps, each family predicted without it.
        hosts: What choices gave away by what was measured on each of several hosts.
        elsewhere: How far real runs of the same jobs on other hosts are from each other.
        targets: The targets and what was reached.
        families: Errors of steps by family.
        busy: The same, by how busy a job alone keeps the GPU.
        noise: By mode: how far two runs of the same jobs lie apart.
        steadiness: How many workloads repeat well.
        budgets: By mode: what the squared error consists of.
        seen: How good answers are from whole profiles, and from what nvidia-smi shows.
        ablations: Errors without each part of the model.
        profiling: What profiling takes; None if no profile recorded it.
        left_out: Errors of steps on other GPUs, by models that never saw these.
        cross_talk: What the other GPUs of a host do to a run.
        worst: The jobs predicted worst, the worst first.
        recommended: What became of recommendations written down beforehand, by panel.
        whole_jobs: Of jobs run from the first step to the last; None without any.
        set_aside: What was measured again, and what was said by it; None without any.
        memory: How far memory is off, and how often mixes run out of it.
        power: How far power and activity are off.
        advice: Runs of advice.
        campaigns: How fast campaigns went.
        points: By mode: every scored job.
        recommendation: What ``advisor recommend`` prints on 100 columns, line by line.
    """

    schema: Literal[1] = 1
    data: DataFigures
    scores: Scores
    hosts: tuple[HostChoices, ...]
    elsewhere: tuple[Elsewhere, ...]
    targets: tuple[Target, ...]
    families: tuple[ScoredGroup, ...]
    busy: tuple[ScoredGroup, ...]
    noise: Mapping[str, Noise]
    steadiness: RepeatSummary
    budgets: Mapping[Mode, Budget]
    seen: tuple[Seen, ...]
    ablations: tuple[Ablated, ...]
    profiling: ProfilingTime | None
    left_out: tuple[GpuLeftOut, ...]
    cross_talk: tuple[CrossTalk, ...]
    worst: tuple[Worst, ...]
    recommended: tuple[Recommended, ...]
    whole_jobs: WholeJobs | None
    set_aside: SetAside | None
    memory: MemoryScore
    power: tuple[PowerRow, ...]
    advice: Advice
    campaigns: tuple[Sitting, ...]
    points: Mapping[str, Points]
    recommendation: tuple[str, ...]


def figures_of(found: Findings, recommendation: tuple[str, ...] = ()) -> Figures:
    """The figures of `found`, and the example for new users."""
    evaluation = found.evaluation
    return Figures(
        data=data_figures(found),
        scores=scores_of(evaluation),
        hosts=choices_by_host(evaluation),
        elsewhere=elsewhere(evaluation),
        targets=targets(found),
        families=by_family(evaluation), busy=by_busy_share(evaluation),
        noise=noise_by_mode(evaluation),
        steadiness=steadiness(evaluation.repeats),
        budgets=budgets_of(evaluation),
        seen=seen(evaluation.runs, found.less),
        ablations=found.ablations,
        profiling=profiling_time(found.profiles.values()),
        left_out=found.left_out,
        cross_talk=cross_talk(found.runs, found.profiles),
        worst=worst(evaluation),
        recommended=recommended(evaluation),
        whole_jobs=whole_jobs(found.completions, found.unseen_completions, found.profiles),
        set_aside=found.set_aside,
        memory=found.memory,
        power=found.power,
        advice=advice_of(found.validation),
        campaigns=sittings(found.runs),
        points=points(evaluation),
        recommendation=recommendation,
    )  # fmt: skip
