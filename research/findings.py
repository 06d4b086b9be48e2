"""Computes all results from the committed data of one GPU, once for all documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.fit.surrogate_fit import with_surrogate
from advisor.prediction.predictor import Predictor
from advisor.validate.evaluate import Evaluation, evaluate
from advisor.validate.predicted_and_measured import RunComparison, compare, profiles_of
from advisor.validate.selection import Selection, of_pace, select
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.ablation import Ablated, ablations
from research.completion import CompletionComparison, Unseen, compared_completions, panels
from research.fewer_counters import UnseenFamilies, predicted_from_less
from research.files import measured
from research.gpu_left_out import GpuLeftOut, gpus_left_out, learnt_elsewhere
from research.memory_score import MemoryScore, evaluate_memory
from research.power_score import PowerData, PowerRow, power_scores
from research.set_aside import SetAside, set_aside


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the committed data of one GPU say.

    Attributes:
        profiles: Solo profiles by name.
        runs: Every run, in the order of files and lines.
        selection: What evaluation does with each of them.
        evaluation: Each family predicted without it.
        validation: Runs of advice, predicted by a model fitted to runs of other job sets.
        power: How far power and activity are off, each family predicted without it.
        memory: Errors of memory, and how often mixes run out of it.
        ablations: How far the pace is off without each part of the model.
        less: The scored runs, predicted from less than whole profiles, by what these show.
        left_out: Other GPUs, by the models of `evaluation`; and this one, by models of theirs.
        set_aside: What was measured again; None if nothing was.
        completions: Runs of whole jobs, simulated by the model that `validation` is predicted by.
        unseen_completions: Those of mixes to be simulated, not of plans to be chosen from: each
            job by the model that never saw its family.
    """

    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    selection: Selection
    evaluation: Evaluation
    validation: tuple[RunComparison, ...]
    power: tuple[PowerRow, ...]
    memory: MemoryScore
    ablations: tuple[Ablated, ...]
    less: Mapping[str, tuple[RunComparison, ...]]
    left_out: tuple[GpuLeftOut, ...] = ()
    set_aside: SetAside | None = None
    completions: tuple[CompletionComparison, ...] = ()
    unseen_completions: tuple[CompletionComparison, ...] = ()


def findings(folder: Path, gpu: Gpu, processes: int = 1) -> Findings:
    """Reads and evaluates the profiles and runs in `folder`, over so many `processes`."""
    profiles, runs = measured(folder)
    playback = ReplayCache()
    taught = MeasuredGpu(gpu, profiles, of_other_sets(runs))
    everyone = {gpu: list(profiles.values())}
    model = with_surrogate(fit([taught], playback), everyone, processes=processes)
    evaluation = evaluate(profiles, runs, gpu, processes, playback)
    selection = select(profiles, runs, gpu)
    predictor = Predictor(gpu, model, play=playback.play)
    whole = compared_completions(runs, profiles, predictor.on_known_cores())
    families = UnseenFamilies(gpu, evaluation.models, playback.play)
    folders = sorted(folder.parent.iterdir())
    return Findings(
        profiles=profiles,
        runs=runs,
        selection=selection,
        evaluation=evaluation,
        validation=_validation(runs, profiles, predictor),
        power=power_scores(_power_data(evaluation, runs, predictor, playback)),
        memory=evaluate_memory(profiles, runs, gpu),
        ablations=ablations(taught, [each.run for each in evaluation.adjusted], model, playback),
        less=predicted_from_less(profiles, selection.scored, families),
        left_out=(
            *gpus_left_out(folders, gpu.key, evaluation.models),
            *learnt_elsewhere(folders, folder, processes),
        ),
        set_aside=set_aside(folder, whole, profiles, predictor.on_known_cores()),
        completions=whole,
        unseen_completions=_unseen(whole, profiles, Unseen(families)),
    )


def _validation(
    runs: Sequence[Run], profiles: Mapping[str, Profile], predictor: Predictor
) -> tuple[RunComparison, ...]:
    return tuple(
        compare(run, profiles_of(run, profiles, "raw"), predictor, predictor.gpu, {})
        for run in of_pace(runs)
        if run.purpose == "validation" and run.shows_pace
    )


def _power_data(
    evaluation: Evaluation, runs: Sequence[Run], predictor: Predictor, playback: ReplayCache
) -> PowerData:
    return PowerData(
        profiles=evaluation.profiles, runs=of_pace(runs), scored=evaluation.runs,
        repeats=evaluation.repeats, gpu=predictor.gpu,
        physics=predictor.model.of(predictor.gpu).physics, playback=playback,
    )  # fmt: skip


def of_other_sets(runs: Sequence[Run]) -> list[Run]:
    """Those of `runs` that are no advice, repeat none, and share none of its job sets."""
    advice = [run for run in runs if run.purpose == "validation"]
    ids, sets = {run.id for run in advice}, {_jobs(run) for run in advice if len(run.tenants) > 1}
    return [run for run in runs if not {run.id, run.repeats} & ids and _jobs(run) not in sets]


def _jobs(run: Run) -> tuple[str, ...]:
    return tuple(sorted(tenant.workload.name for tenant in run.tenants))


def _unseen(
    whole: Sequence[CompletionComparison], profiles: Mapping[str, Profile], predictor: Unseen
) -> tuple[CompletionComparison, ...]:
    """Sets that were run in many ways would take many times as long as all others."""
    chosen_from = {id(each) for panel in panels(whole) for each in panel}
    runs = [each.run for each in whole if id(each) not in chosen_from and predictor.knows(each.run)]
    return compared_completions(runs, profiles, predictor)
