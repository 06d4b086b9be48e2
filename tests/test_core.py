"""Commands where only the core is installed: they answer, or name the extra that they need."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import errors
from advisor.errors import AdvisorError
from tests.waiting import PATIENCE_S

EXTRAS = (
    "altair",
    "mlflow",
    "optuna",
    "pandas",
    "playwright",
    "prometheus_client",
    "ray",
    "scipy",
    "sklearn",
    "streamlit",
    "threadpoolctl",
    "timm",
    "torch",
    "torchvision",
    "vl_convert",
)
R, B, GPU = "resnet50-imagenet64-bs128", "bert-base-finetune-bs32-amp", "--gpu h200-141gb"
ANSWERING = (
    f"recommend {R} {B} {GPU} --csv plans.csv",
    f"recommend {R} {B} {GPU} --json",
    f"recommend {R} {B} --gpu a100-40gb",
    f"recommend {R}:6 {B}:6 {GPU}",
    f"recommend {R} {B}:2 {GPU} --gpus 2",
    f"admit {R} {GPU} --running {B} --max-slowdown 2",
    f"copies {R} {GPU}",
    f"trials {B} {GPU}",
    f"batch {R} {GPU}",
    f"predict {R} {B} {GPU} --sharing mps=40,60",
    f"compare naive mps {R} {B} {GPU}",
    f"simulate {R} {B} {GPU} --csv jobs.csv",
    "init trace",
    f"simulate --trace-in trace.csv {GPU}",
    "init jobs",
    f"recommend --jobs jobs.toml {GPU}",
    f"export {R} {B} {GPU} --format json --out plan.json",
    f"export {R} {B} {GPU} --sharing mps=50,50 --format kubernetes",
    "simulate --plan plan.json",
    "run plan.json",
    "init campaign",
    "campaign campaign.toml --dry-run --out runs --profiles profiles",
    "profile --from-numbers --name own --gpu a100-40gb --batch-size 64 --step-s 0.12 "
    "--memory-mib 5300 --out own",
    "predict own/own.json --gpu a100-40gb",
    "profile --from-history history.csv --step-s 0.1 --out own",
    f"profiles {GPU}",
    "gpus",
    f"layouts {GPU}",
    "workloads",
)
NEEDING = {
    "app": "page",
    "fit --out models": "fit",
    "profile resnet152-cifar10-bs32 --device cpu --out own": "profile",
    f"export {R} {GPU} --mlflow sqlite:///x.db": "mlflow",
    f"export {R} {B} {GPU} --plot plans.svg": "page",
    f"simulate {R} {B} {GPU} --plot jobs.svg": "page",
    "run plan.json --metrics 9401": "metrics",
    "campaign campaign.toml --ray auto --out runs --profiles profiles": "ray",
    "run plan.json --ray auto": "ray",
}
WITHOUT = f"import sys\nsys.modules.update(dict.fromkeys({EXTRAS}))  # they cannot be imported\n"
HISTORY = "name, utilization.gpu [%], memory.used [MiB]\n" + 20 * "NVIDIA H200, 83 %, 5300 MiB\n"
# Each command ends with a line on stderr that has its exit code.
PROGRAM = """
import shlex, sys
from advisor.cli import main
for line in sys.stdin:
    try:
        main(shlex.split(line))
    except SystemExit as end:
        print(f"\\0{end.code or 0}", file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The exit code of each command without any extra, and what it printed on stderr."""
    commands, folder = [*ANSWERING, *NEEDING], tmp_path_factory.mktemp("core")
    (folder / "history.csv").write_text(HISTORY)
    (folder / "sitecustomize.py").write_text(WITHOUT)  # its child processes load it too
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(commands),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    printed, codes, after = "", [], done.stderr
    while "\0" in after:
        printed, after = after.split("\0", 1)
        code, _, after = after.partition("\n")
        codes.append((int(code), printed))
    assert len(codes) == len(commands), done.stderr[-3000:]
    return dict(zip(commands, codes, strict=True))


@pytest.mark.parametrize("command", ANSWERING)
def test_the_core_alone_answers(ended, command):
    code, printed = ended[command]
    assert code == 0, printed


@pytest.mark.parametrize(("command", "extra"), NEEDING.items())
def test_a_command_names_the_extra_that_it_needs(ended, command, extra):
    code, printed = ended[command]
    assert (code, f"pip install 'gpu-advisor[{extra}]'" in printed) == (1, True), printed


@pytest.mark.parametrize(
    ("lacking", "remedies"),
    [("torch", ["pip install"]), ("timm", []), ("torchvision", [])],
)
def test_an_extra_is_installed_into_advisors_environment_and_never_where_a_torch_is(
    lacking, remedies, monkeypatch
):
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == lacking else name)
    with pytest.raises(AdvisorError, match="the extra 'profile'") as raised:
        errors.require_extra("measuring resnet50", "profile", "torch", lacking)
    assert re.findall("pip install", str(raised.value)) == remedies
    assert (sys.executable in str(raised.value)) == bool(remedies)
