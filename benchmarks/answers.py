"""What `advisor recommend` answers to 20 questions, and what changed since they were written down.

    python benchmarks/answers.py           # what differs from benchmarks/answers.json
    python benchmarks/answers.py --write   # writes it anew

Of each question the plans in their order: how they share, and what is predicted of all jobs
together. Questions of many jobs are searched for as long as there is time, so that theirs may
differ from one time to the next. Nothing here is a test.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("answers.json")
FIGURES = ("makespan_s", "weighted_speedup", "throughput", "energy_j")
QUESTIONS = (
    "",
    "resnet50-imagenet64-bs128:2 bert-base-finetune-bs16 --objective throughput",
    "resnet50-imagenet64-bs128:2",
    "bert-base-finetune-bs16:3 --objective energy",
    "cait_xxs24_224-cifar10-bs128:7",
    "resnet26-cifar10-bs128:7 --objective throughput",
    "cnn-cifar10-bs128:4 gpt2-small-pretrain-bs8-amp:2",
    "dlrm-1gb-bs128 gru-speech-bs64 unet-cifar10-bs64 --objective mean-completion",
    "densenet121-cifar10-bs64 convnext_tiny-imagenet64-bs128 --pessimistic",
    "swin_tiny_patch4_window7_224-imagenet-bs32 mlp-toy-bs128 --objective mean-completion",
    "gcn-molecules-bs256 transformer-toy-bs32 lstm-wikitext-bs32 resnet26-cifar10-bs128 --no-root",
    "vit_small_patch16_224-imagenet64-bs128:2 mixer_s16_224-imagenet64-bs128:2 --memory-margin 0.1",
    "regnety_016-imagenet64-bs128 resnet50-cifar10-bs32 tf_efficientnetv2_s-cifar10-bs128 "
    "--power-cap 500",
    "resnet26-cifar10-bs128 cait_xxs24_224-cifar10-bs128 bert-base-finetune-bs4 dlrm-8gb-bs2048 "
    "gru-speech-bs64 unet-imagenet64-bs32-tf32 gpt2-small-finetune-bs2",
    "dlrm-29gb-bs128:4",
    "cnn-cifar10-bs128:auto",
    "cnn-cifar10-bs128:20 bert-base-finetune-bs16:4 --gpus 4",
    "resnet152-imagenet-bs32:5 transformer-toy-bs32:5 lstm-wikitext-bs32:4",
)


def answer(question: str) -> list[dict[str, Any]]:
    """The plans, in their order; how many copies pay is answered by their ways to share."""
    command = [sys.executable, "-m", "advisor", "recommend", *question.split(), "--json"]
    if ":auto" not in question and "--gpus" not in question:
        command += ["--top", "20"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    plans = said["plans"] if "plans" in said else said["rows"]
    told = ("copies", "sharing", "power_cap_w", *FIGURES)
    return [
        {key: plan[key] for key in told if isinstance(plan.get(key), float | int | str)}
        for plan in plans
    ]


def named(plan: dict[str, Any]) -> str:
    """What tells it from the others of an answer."""
    return " ".join(str(plan[key]) for key in ("copies", "sharing", "power_cap_w") if key in plan)


def changes(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> Iterator[str]:
    if named(before[0]) != named(now[0]):
        yield f"rank 1: {named(before[0])} -> {named(now[0])}"
    known = {named(plan): plan for plan in before}
    both = [(known[named(plan)], plan) for plan in now if named(plan) in known]
    yield f"{len(both)} of {len(before)} plans are there still"
    for figure in FIGURES:
        moved = [abs(new[figure] / old[figure] - 1) for old, new in both if old.get(figure)]
        if moved and max(moved) > 1e-6:
            yield f"{figure} moved by up to {max(moved):.2%}"


def main() -> None:
    now = {question: answer(question) for question in QUESTIONS}
    if "--write" in sys.argv:
        KEPT.write_text(json.dumps(now, indent=1) + "\n")
        return
    before = json.loads(KEPT.read_text())
    for question, plans in now.items():
        print(f"{question or 'the bundled jobs'}: {'; '.join(changes(before[question], plans))}")


if __name__ == "__main__":
    main()
