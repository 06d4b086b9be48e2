"""Trains on images that loaders decode, alone and together, with cores enough and with too few.

    python benchmarks/loader_study.py --device 0 --out FOLDER [--deadline 230]

Makes the images on the spot, profiles workloads whose loaders read them with 1, 2, 4 and 8 workers,
and runs mixes of them, then mixes on a few cores that all of them share. Begun again with the same
folder it goes on where it was. `research.loader_score` compares the profiles, and what is predicted
from them, with the runs. With ``--device cpu`` small stand-ins try out the way.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from time import monotonic

from advisor.measure.process.cores import allowed_cores
from advisor.workload.documents import read_json

CLASSES, OF_EACH, SIDE, QUALITY = 10, 40, 256, 90
# On a GPU: one whose loader is the slower side up to about 4 workers, and one with longer steps.
NETWORKS = ("resnet50-imagenet64-bs32", "resnet152-imagenet-bs32-fp16")
WORKERS = {NETWORKS[0]: (1, 2, 4, 8), NETWORKS[1]: (4, 8)}
# Loader workers of each job of the first network that runs together; and on how many cores.
TOGETHER = {"mps": ((1, 1), (2, 2), (4, 4), (1, 8), (2, 2, 2, 2)), "naive": ((2, 2), (4, 4))}
CROWDED, FEW = ((8,), (1, 1, 1, 1), (2, 2), (4, 4), (2, 2, 2)), 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="0")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--deadline", type=float, default=230.0)
    Study(parser.parse_args()).run()


class Study:
    """What is measured into one folder, until a deadline."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._device, self._out = asked.device, asked.out.resolve()
        self._until = monotonic() + asked.deadline
        self._tried = asked.device == "cpu"

    def run(self) -> None:
        make_images(self._out / "images")
        self._profile()
        few = ",".join(map(str, allowed_cores()[:FEW]))
        self._together("runs", dict(self._mixes()))
        crowded = {f"crowded-{tag(each)}": ("mps", each) for each in CROWDED}
        self._together("runs-crowded", crowded, "--cores", few, "--share-cores")

    def _mixes(self) -> Iterator[tuple[str, tuple[str, Sequence[int]]]]:
        for mode, mixes in TOGETHER.items():
            for each in mixes:
                yield f"together-{mode}-{tag(each)}", (mode, each)

    def _name(self, workers: int) -> str:
        return f"{'cnn-cifar10-bs8' if self._tried else NETWORKS[0]}-loader{workers}"

    def _profile(self) -> None:
        names = [f"{name}-loader{workers}" for name in NETWORKS for workers in WORKERS[name]]
        if self._tried:
            names = [self._name(1), self._name(2)]
        self._start(
            "advisor.profiling", *names, "--data", str(self._out / "images"), "--no-probe",
            "--out", str(self._out / "profiles"), "--skip-existing",
        )  # fmt: skip

    def _together(
        self, file: str, mixes: dict[str, tuple[str, Sequence[int]]], *words: str
    ) -> None:
        plans = []
        for name, (mode, workers) in mixes.items():
            jobs = [self._workload(1 + each % 2 if self._tried else each) for each in workers]
            if all(jobs):
                sharing = "naive" if self._tried else mode
                plans.append({"id": name, "sharing": sharing, "purpose": "chosen",
                              "repeats": None, "workloads": jobs})  # fmt: skip
        gpu = next((self._out / "profiles").glob("*.json"), None)
        if gpu is None:
            sys.exit("no profile was made before the deadline: begin again, with a longer one")
        document = {"schema": 1, "gpu": read_json(gpu)["gpu"], "plans": plans}
        path = self._out / f"{file}.json"
        path.write_text(json.dumps(document, indent=1) + "\n")
        self._start(
            "advisor.collocation", str(path), "--out", str(self._out / f"{file}.jsonl"),
            "--resume", "--settle", "1.5", *words,
        )  # fmt: skip

    def _workload(self, workers: int) -> dict | None:
        """As its profile says; None where there is none yet."""
        path = self._out / "profiles" / f"{self._name(workers)}-files.json"
        return read_json(path)["workload"] if path.is_file() else None

    def _start(self, module: str, *words: str) -> None:
        left_s = self._until - monotonic()
        if left_s < 10:
            sys.exit("the deadline is near: begin again with the same --out")
        limit = ("--device", self._device, "--deadline", f"{left_s:.0f}")
        done = subprocess.run([sys.executable, "-m", module, *words, *limit], check=False)
        if done.returncode not in (0, 1):  # 1: some workloads failed, and the others were measured
            sys.exit(done.returncode)


def tag(workers: Sequence[int]) -> str:
    return "-".join(map(str, workers))


def make_images(folder: Path) -> None:
    """JPEG files of smooth noise, a folder for each class, unless they are there."""
    import numpy as np
    from PIL import Image

    if folder.is_dir():
        return
    random = np.random.default_rng(Random(2061).randrange(2**32))
    draft = folder.with_name("images-draft")
    for name in range(CLASSES):
        (draft / f"class{name}").mkdir(parents=True, exist_ok=True)
        for number in range(OF_EACH):
            small = random.integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
            image = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            image.save(draft / f"class{name}" / f"{number}.jpg", quality=QUALITY)
    draft.rename(folder)


if __name__ == "__main__":
    main()
