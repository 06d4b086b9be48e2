"""README's commands, step by step, for a script in an environment other than the advisor's.

    python benchmarks/own_environment.py --python ~/env/bin/python --out OUT \
        --install 'python3 -m venv VENV && VENV/bin/pip install .' --advisor VENV/bin/advisor

It copies the project, installs the advisor by the shell line of `--install` in that copy, and runs
the commands in the folder of a made-up user: `train.py`, its data, and a log of more than 1 MiB
that the script appends to by a shell. Before `run --apply` every file of the user must be as it
was, byte for byte. ``OUT/own-environment.json`` has the seconds and the output of each command,
and ``OUT/own-environment-train.json`` is the profile of the script. In `benchmarks/` both are what
README shows: `research/readme.py` writes it. On a CPU (`--device cpu`) the numbers of the plan are
made up.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
SHOWN = "~/env/bin/python"

TRAIN = """\
import argparse
import subprocess

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--device", default="cuda")
options = parser.parse_args()
width = options.width

layers = [torch.nn.Conv2d(3, width, 3, padding=1), torch.nn.ReLU()]
for _ in range(6):
    layers += [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.BatchNorm2d(width)]
    layers += [torch.nn.ReLU()]
layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 10)]
network = torch.nn.Sequential(*layers).to(options.device)
optimizer = torch.optim.SGD(network.parameters(), lr=options.lr)
images = torch.load("images.pt")
labels = torch.randint(0, 10, (len(images),))
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(images, labels), batch_size=64, shuffle=True
)
for epoch in range(options.epochs):
    for batch, target in loader:
        loss = torch.nn.functional.cross_entropy(
            network(batch.to(options.device)), target.to(options.device)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    subprocess.run(f"echo epoch {epoch}: {loss.item():.4f} >> train.log", shell=True, check=True)
    torch.save(network.state_dict(), f"checkpoint-{options.lr}.pt")
"""
DATA = "import sys, torch; torch.save(torch.randn(int(sys.argv[1]), 3, 32, 32), 'images.pt')"
WHERE = """\
import platform, torch
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
print(gpu, platform.python_version(), torch.__version__, sep="\\n")
"""
SCRIPT = "train.py --lr 0.1"
RECORD, PROFILE = "own-environment.json", "own-environment-train.json"
ON_GPU = (
    "doctor",
    f"profile -- {SHOWN} {SCRIPT}",
    "recommend train:3",
    "compare naive mps train:3",
    "validate train:3",
    "export train:3 --format json --out plan.json",
)
ON_CPU = (
    f"profile --device cpu -- {SHOWN} {SCRIPT} --device cpu --width 2",
    "profile --from-numbers --name own --gpu h200-141gb --batch-size 64 --examples-per-epoch 256 "
    "--step-s 0.2 --memory-mib 1500 --gpu-utilization 0.5",
    "recommend own:3 --gpu h200-141gb",
    "recommend --jobs jobs.toml --gpu h200-141gb --check-host",
    "export --jobs jobs.toml --gpu h200-141gb --sharing naive --format json --out plan.json",
)
JOB = (
    '[[job]]\nprofile = "own"\ncommand = "{} train.py --lr {} --epochs 2 --device cpu --width 2"\n'
)


def make_user(folder: Path, python: str, images: int) -> None:
    """Make the folder of a user: a script, its data, and a log larger than what is copied."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "train.log").write_text("epoch of an older run\n" * 100_000)
    subprocess.run([python, "-c", DATA, str(images)], cwd=folder, check=True)
    (folder / "jobs.toml").write_text("".join(JOB.format(python, rate) for rate in (0.1, 0.2, 0.4)))


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file below `folder`."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def timed(words: str | list[str], folder: Path, shown: str) -> dict[str, object]:
    """Run a command or a shell line; return what it printed, and how long it took."""
    began = monotonic()
    done = subprocess.run(
        words,
        shell=isinstance(words, str),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = round(monotonic() - began, 1)
    print(f"{seconds:6.1f} s, exit {done.returncode}: {shown}\n{done.stdout}", flush=True)
    return {
        "command": shown,
        "seconds": seconds,
        "exit": done.returncode,
        "printed": done.stdout.replace(str(folder), "").splitlines()[-40:],
    }


def main() -> int:
    """Go the whole way; return 0 if each command succeeded and no file of the user changed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="the script's")
    parser.add_argument("--install", required=True, help="a shell line, in the copy of the project")
    parser.add_argument("--advisor", required=True, help="the command it installs")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    out, user = options.out.resolve(), options.out.resolve() / "user"
    out.mkdir(parents=True)
    kinds = ("DATA", "STATE", "CACHE", "CONFIG")
    os.environ |= {f"XDG_{kind}_HOME": str(out / "xdg" / kind.lower()) for kind in kinds}
    python, advisor = (
        str(Path(path).expanduser().absolute()) for path in (options.python, options.advisor)
    )
    hidden = shutil.ignore_patterns(".git", ".venv", "shared", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, out / "project", ignore=hidden)
    on_cpu = options.device == "cpu"
    make_user(user, python, 256 if on_cpu else 16_384)
    where = subprocess.run([python, "-c", WHERE], capture_output=True, text=True, check=True)
    steps: list[dict[str, object]] = []
    record: dict[str, object] = {
        **dict(zip(("device", "python", "torch"), where.stdout.splitlines(), strict=True)),
        "profile": f"benchmarks/{PROFILE}",
        "steps": steps,
    }
    steps.append(timed(options.install, out / "project", options.install))
    before = digests(user)
    for line in ON_CPU if on_cpu else ON_GPU:
        words = [python if word == SHOWN else word for word in shlex.split(line)]
        steps.append(timed([advisor, *words], user, f"advisor {line}"))
    after = digests(user)
    record["changed"] = [name for name, digest in before.items() if after.get(name) != digest]
    record["new"] = sorted(after.keys() - before.keys())
    line = f"run plan.json --apply{' --device cpu' * on_cpu}"
    steps.append(timed([advisor, *line.split()], user, f"advisor {line}"))
    ended = digests(user)
    record["changed_by_run"] = [name for name, it in ended.items() if after.get(name) != it]
    (profile,) = (out / "xdg" / "data").glob("advisor/profiles/*/train.json")
    texts = {RECORD: json.dumps(record, indent=1) + "\n", PROFILE: profile.read_text()}
    for name, text in texts.items():
        (out / name).write_text(text.replace(python, SHOWN).replace(str(out), ""))
    print(*(f"{name}: {record[name]}" for name in record if name != "steps"), sep="\n")
    failed = [step for step in steps if step["exit"] and not step["command"].endswith("doctor")]
    return int(bool(failed or record["changed"]))


if __name__ == "__main__":
    sys.exit(main())
