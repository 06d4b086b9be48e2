"""Draws the shared runs of a campaign by a seed, so that nobody chooses what is scored.

    python benchmarks/draw_campaign.py --seed 2026 --shards 4 --out benchmarks/campaign

writes ``plans-0.json`` .. for ``python -m advisor.collocation``, one file a GPU, which may run at
the same time. Each interleaves solo runs, and ends with fresh repeats of some of its own.
"""

import argparse
import json
from pathlib import Path
from random import Random

WORKLOADS = (
    "resnet26-cifar10-bs128",
    "resnet26-imagenet64-bs32",
    "resnet50-cifar10-bs32",
    "resnet50-imagenet64-bs128",
    "resnet50-imagenet-bs32-amp",
    "resnet152-imagenet-bs32",
    "tf_efficientnetv2_s-cifar10-bs128",
    "tf_efficientnetv2_s-imagenet64-bs128",
    "tf_efficientnetv2_s-imagenet-bs32",
    "cait_xxs24_224-cifar10-bs128",
    "cait_xxs24_224-imagenet-bs32",
    "vit_small_patch16_224-imagenet64-bs128",
    "vit_small_patch16_224-imagenet-bs32-amp",
    "convnext_tiny-imagenet64-bs128",
    "convnext_tiny-imagenet-bs32-tf32",
    "mobilenetv3_large_100-imagenet64-bs32",
    "mobilenetv3_large_100-imagenet-bs128",
    "dlrm-1gb-bs128",
    "dlrm-8gb-bs2048",
    "bert-base-finetune-bs16",
    "bert-base-finetune-bs32-amp",
    "gpt2-small-pretrain-bs8-amp",
    "gpt2-small-finetune-bs2",
    "gpt2-medium-finetune-bs4-tf32",
    "gpt2-medium-pretrain-bs4",
    "cnn-cifar10-bs128",
    "transformer-toy-bs32",
    "mlp-toy-bs128",
)
# They fill the GPU's memory, or its host's cores, in sevens.
UP_TO_THREE = ("resnet152-imagenet-bs128", "dlrm-29gb-bs128", "resnet50-imagenet64-bs128-loader4")
LIMITS = (14, 28, 43, 57, 71, 86)
EQUAL_LIMITS = {
    2: (43, 50, 71), 3: (28, 33, 57), 4: (28, 43, 57), 5: (20, 28, 43), 7: (14, 28, 43),
}  # fmt: skip
# Degree -> how many runs of each mode, equal jobs and mixed ones.
COUNTS = {2: (6, 14), 3: (5, 13), 4: (4, 16), 5: (4, 16), 7: (4, 12)}
SOLO_EVERY = 5
REPEATS = 24


def limits(random: Random, degree: int) -> str:
    """An equal limit for all, or one drawn for each."""
    if random.random() < 0.5:
        drawn = [random.choice(EQUAL_LIMITS[degree])] * degree
    else:
        drawn = random.choices(LIMITS, k=degree)
    return "mps=" + ",".join(map(str, drawn))


def shared_runs(random: Random, degrees: list[int]) -> list[tuple[str, list[str]]]:
    """Sharing and workloads of every run, in random order."""
    runs = []
    for degree in degrees:
        same, mixed = COUNTS[degree]
        pool = WORKLOADS if degree > 3 else WORKLOADS + UP_TO_THREE
        for mode in ("naive", "mps", "limits"):
            jobs = [[name] * degree for name in random.sample(pool, same)]
            jobs += [random.sample(pool, degree) for _ in range(mixed)]
            runs += [(limits(random, degree) if mode == "limits" else mode, job) for job in jobs]
    random.shuffle(runs)
    return runs


def plans(random: Random, degrees: list[int], prefix: str) -> list[dict]:
    """All plans of a campaign: drawn runs, solo runs between them, then repeats."""
    drawn, solos = [], list(WORKLOADS + UP_TO_THREE)
    random.shuffle(solos)
    for number, (sharing, jobs) in enumerate(shared_runs(random, degrees)):
        drawn.append(plan(f"{prefix}drawn-{number:03}", sharing, "drawn", jobs))
        if number % SOLO_EVERY == 0 and solos:
            drawn.append(plan(f"{prefix}solo-{number:03}", "naive", "solo", [solos.pop()]))
    shared = [each for each in drawn if each["purpose"] == "drawn"]
    again = [
        plan(f"repeat-of-{each['id']}", each["sharing"], "repeat", each["workloads"], each["id"])
        for each in random.sample(shared, REPEATS)
    ]
    return drawn + again


def plan(
    name: str, sharing: str, purpose: str, jobs: list[str], repeats: str | None = None
) -> dict:
    return {
        "id": name, "sharing": sharing, "purpose": purpose, "repeats": repeats, "workloads": jobs,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--gpu", default="h200-141gb")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--degrees", type=int, nargs="+", default=[2, 3, 7])
    parser.add_argument("--prefix", default="", help="of the runs' ids, which must be unique")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    everything = plans(Random(asked.seed), asked.degrees, asked.prefix)
    for shard in range(asked.shards):
        document = {"schema": 1, "gpu": asked.gpu, "plans": everything[shard :: asked.shards]}
        path = asked.out / f"plans-{shard}.json"
        path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(everything)} runs in {asked.shards} files")


if __name__ == "__main__":
    main()
