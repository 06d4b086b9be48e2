"""How far profiles translated to another GPU are off what was measured there.

    python -m research.translation_score THEIRS > benchmarks/translation/accuracy.json

Workloads that were profiled on an H200 and an H100 are translated from each to the other. Those of
`benchmarks/translation`, profiled on an H100, are compared with what others timed, in files of the
folder THEIRS: BERT-large and GPT-2-large in FP32 on an A100, an L4 and a V100 (NeuSight's artifact,
ASPLOS'25), ViT-B/16 and ResNet-50 in eval mode on an A100's largest MIG instance (MIGPerf), and
networks of timm on an RTX 3090 (timm's results). Each is compared with one ratio for all workloads:
the median of those measured, which nobody has who has not measured there.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median

from advisor.hardware.catalogue import Gpu, gpu
from advisor.hardware.gpu_partition import partition_of
from advisor.prediction.estimate_doubt import estimate_spread
from advisor.prediction.gpu_transfer import on_gpu
from advisor.prediction.interval import interval_around
from advisor.prediction.memory import Z95
from advisor.workload.profile import Profile
from research.files import BENCHMARKS, PROFILES, csv_rows, profiles_in, rounded

FOLDER = BENCHMARKS / "translation" / "profiles"
PAIRS = (("h200-141gb", "h100-sxm-80gb"), ("h100-sxm-80gb", "h200-141gb"))

_THEIR_GPUS = {
    "NVIDIA_A100_80GB_PCIe": "a100-80gb",
    "NVIDIA_L4": "l4-24gb",
    "Tesla_V100-PCIE-32GB": "v100-pcie-32gb",
}
VISION = {
    "vision_transformer": "vit_base_patch16_224-imagenet-bs{}-tf32",
    "resnet50_moco": "resnet50-finetune-bs{}-tf32",
}
# At this batch their host sets the pace: twice the batch takes a tenth or a third longer only.
OF_THEIR_HOST = "8"


@dataclass(frozen=True, slots=True)
class TranslatedStep:
    """One workload on one GPU; steps in seconds, what is compared said by the check."""

    workload: str
    gpu: str
    here_s: float
    predicted_s: float
    measured_s: float
    spread: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class TranslationScore:
    """Errors of translated steps.

    Attributes:
        check: What was compared.
        mape: Mean absolute error, 0..1.
        bias: Mean error.
        worst: Largest absolute error.
        one_ratio: Mean absolute error of one ratio for all workloads of each GPU.
        inside: Share of measurements in the 90 % interval.
    """

    check: str
    steps: int
    mape: float
    bias: float
    worst: float
    one_ratio: float
    inside: float


def scored(check: str, steps: Sequence[TranslatedStep]) -> TranslationScore:
    """The errors of `steps`, at least one."""
    errors = [each.error for each in steps]
    ratios = {
        key: median(each.measured_s / each.here_s for each in steps if each.gpu == key)
        for key in {each.gpu for each in steps}
    }
    return TranslationScore(
        check,
        len(steps),
        mape=mean(map(abs, errors)),
        bias=mean(errors),
        worst=max(map(abs, errors)),
        one_ratio=mean(abs(ratios[s.gpu] * s.here_s / s.measured_s - 1) for s in steps),
        inside=mean(map(_inside, steps)),
    )


def _inside(step: TranslatedStep) -> bool:
    end = Z95 * step.spread
    return interval_around(step.predicted_s, -end, end).contains(step.measured_s)


def between(here: Mapping[str, Profile], there: Mapping[str, Profile]) -> list[TranslatedStep]:
    """The GPU's part of a step of each workload that both have, from the first to the second."""
    found = []
    for name in sorted(here.keys() & there.keys()):
        moved = on_gpu(here[name], gpu(there[name].gpu))
        before_s, moved_s, true_s = (each.gpu_s for each in (here[name], moved, there[name]))
        if before_s is not None and moved_s is not None and true_s is not None:
            spread = estimate_spread(moved)
            found.append(TranslatedStep(name, moved.gpu, before_s, moved_s, true_s, spread))
    return found


def language_steps(
    profiles: Mapping[str, Profile], theirs: Path, first: str | None
) -> list[TranslatedStep]:
    """Forward and backward pass of language models; from the loss on if `first` is its class.

    Their forward passes contain allocation from the driver, which their scripts cause on purpose.
    """
    column = "step_ms" if first is None else "backward_ms"
    rows = csv_rows(theirs / "language_models_training_fp32.csv")
    wanted = [(row, _THEIR_GPUS[row["gpu"]]) for row in rows if row["gpu"] in _THEIR_GPUS]
    return [
        _step(
            profiles[f"{row['model'].replace('_', '-')}-pretrain-bs{row['batch_size']}"],
            gpu(key),
            partial(_before_optimizer, first=first),
            float(row[column]),
        )
        for row, key in wanted
    ]


def vision_steps(profiles: Mapping[str, Profile], theirs: Path) -> list[TranslatedStep]:
    """ViT-B/16 and ResNet-50 on an A100's 7g.40gb, which has 98 of its 108 SMs."""
    there = _with_sms(gpu("a100-40gb"), partition_of(gpu("a100-40gb"), "7g.40gb").sms)
    rows = csv_rows(theirs / "a100_mig_training.csv")
    named = [
        (profiles.get(VISION[row["model"]].format(row["batch_size"])), row["step_ms"])
        for row in rows
        if row["mig_profile"] == "7g.40gb" and row["batch_size"] != OF_THEIR_HOST
    ]
    return [_step(each, there, _whole, float(step_ms)) for each, step_ms in named if each]


def timm_steps(profiles: Mapping[str, Profile], theirs: Path) -> list[TranslatedStep]:
    """Networks of timm on an RTX 3090, those that were profiled."""
    by_model = {p.workload.model: p for p in profiles.values() if p.workload.precision == "fp16"}
    return [
        _step(by_model[row["model"]], gpu("rtx-3090-24gb"), _whole, float(row["train_step_time"]))
        for row in csv_rows(theirs / "rtx3090_timm_training.csv")
        if row["model"] in by_model
    ]


def _with_sms(whole: Gpu, sms: int) -> Gpu:
    rates, share = whole.rates, sms / whole.sms
    assert rates is not None
    assert rates.tf32_tflops is not None
    return replace(
        whole,
        sms=sms,
        rates=replace(
            rates,
            fp32_tflops=share * rates.fp32_tflops,
            tf32_tflops=share * rates.tf32_tflops,
            fp16_tflops=share * rates.fp16_tflops,
        ),
    )


def _step(
    profile: Profile, there: Gpu, part_s: Callable[[Profile], float], measured_ms: float
) -> TranslatedStep:
    moved = on_gpu(profile, there)
    return TranslatedStep(
        profile.name, there.key, part_s(profile), part_s(moved), 1e-3 * measured_ms,
        estimate_spread(moved),
    )  # fmt: skip


def _whole(profile: Profile) -> float:
    return profile.step_s


def _before_optimizer(profile: Profile, first: str | None) -> float:
    """Seconds of the kernels before the optimizer's, from the one of the class `first` on."""
    trace = profile.trace
    assert trace is not None
    kinds = [trace.classes[each] for each in trace.class_of]
    begin = 0 if first is None else kinds.index(first)
    return 1e-6 * sum(trace.duration_us[begin : kinds.index("optimizer")])


def scores(theirs: Path | None = None) -> tuple[TranslationScore, ...]:
    """Of the committed profiles, and beside others' timings in the folder `theirs`, if given."""
    measured = {here: profiles_in(PROFILES / here) for here, _ in PAIRS}
    found = [
        scored(f"{here} to {there}, GPU's part", between(measured[here], measured[there]))
        for here, there in PAIRS
    ]
    if theirs is not None:
        known = profiles_in(FOLDER)
        steps = {
            "FP32 language models, step": language_steps(known, theirs, None),
            "FP32 language models, backward": language_steps(known, theirs, "loss"),
            "TF32 vision on a MIG instance": vision_steps(known, theirs),
            "FP16 networks of timm": timm_steps(known, theirs),
        }
        found += [scored(check, each) for check, each in steps.items()]
    return tuple(found)


def main(words: Sequence[str]) -> None:
    found = scores(Path(words[0]) if words else None)
    document = {"schema": 1, "scores": [asdict(each) for each in found]}
    print(json.dumps(rounded(document, ".4f"), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
