"""A folder of made-up profiles and a model fitted to made-up runs, as a user's own would lie."""

from itertools import product
from pathlib import Path

from advisor.files.reading import MODEL_FILE
from advisor.files.writing import record_line, write_whole
from advisor.hardware.gpus import gpu
from advisor.prediction.model import model_text
from tests import synthetic
from tests.fitted import fit

GPU = "h200-141gb"

PROFILES = {
    each.name: each
    for each in (
        synthetic.profile(host_s=0.010, gpu_s=0.030, memory_mib=14_000),
        synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2_500),
        synthetic.profile(
            "bert-base-finetune-bs16", host_s=0.012, gpu_s=0.009, blocks=90, memory_mib=7_000
        ),
        synthetic.profile("dlrm-29gb-bs32", host_s=0.004, gpu_s=0.001, memory_mib=100_000),
        synthetic.profile("dlrm-29gb-bs128", host_s=0.004, gpu_s=0.001, memory_mib=150_000),
    )
}


def fill(folder: Path) -> None:
    """Put profiles and a model under `folder`, as ``profiles/GPU`` and ``models``."""
    for name, each in PROFILES.items():
        write_whole(folder / "profiles" / GPU / f"{name}.json", record_line(each))
    tenants = list(PROFILES.values())[:3]
    modes = ("naive", "mps", "mps=28,28")
    runs = [
        synthetic.run([first, second], mode, slowdown=1.3, run_id=f"{first.name}-{n}-{mode}")
        for n, (first, second, mode) in enumerate(product(tenants, tenants, modes))
    ]
    model = fit(PROFILES, runs, gpu(GPU))
    write_whole(folder / "models" / MODEL_FILE, model_text(model))
