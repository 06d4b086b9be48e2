"""Training scripts of users, each with another kind of step; all count their steps themselves."""

from pathlib import Path

SCRIPTS = {}

# Says in a file how many steps a script has taken, as the script itself counts.
SCRIPTS["counted.py"] = r"""
import os
from pathlib import Path
_FILE = Path(os.environ.get("COUNT", os.devnull))
_steps = 0
def count():
    global _steps
    _steps += 1
    _FILE.write_text(str(_steps))
"""

# A plain loop: reads a file beside it, has a loader, writes what nobody should find later.
SCRIPTS["plain.py"] = r"""
import os
import sys
from pathlib import Path
import torch
from counted import count
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
assert Path("settings.txt").read_text() == "as it was\n"
assert Path("../around.txt").read_text() == "near\n"
assert os.environ["SEED"] == "7"
assert not torch.cuda.is_initialized()
data = TensorDataset(torch.randn(120, 8), torch.randint(0, 3, (120,)))
loader = DataLoader(data, batch_size=int(sys.argv[1]), shuffle=True, num_workers=1)
network = torch.nn.Linear(8, 3)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.1)
for _epoch in range(100_000):
    for inputs, target in loader:
        optimizer.zero_grad()
        cross_entropy(network(inputs), target).backward()
        optimizer.step()
        count()
    with Path("settings.txt").open("a") as written, Path("big.bin").open("wb") as big:
        written.write("changed\n")
        big.write(b"changed")
    network.eval()
    with torch.no_grad():
        network(data.tensors[0])
    network.train()
    torch.save(network.state_dict(), "model.pt")
"""

# A cross-validation: a network, a data set and an optimizer for each fold; the old ones are gone.
SCRIPTS["folds.py"] = r"""
import torch
from counted import count
from torch.utils.data import DataLoader, TensorDataset
for fold in range(100_000):
    network = torch.nn.Linear(4, 3)
    data = TensorDataset(torch.randn(24 * 4, 4))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for (inputs,) in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        network(inputs).sum().backward()
        optimizer.step()
        count()
"""

# As layers are unfrozen in stages: the optimizers before stay, and so does what they hold.
SCRIPTS["stages.py"] = r"""
import torch
from counted import count
network = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
optimizers = []
while True:
    for stage in range(1, 4):
        optimizers.append(torch.optim.SGD(network[-stage:].parameters(), lr=1e-3))
        for _ in range(20):
            optimizers[-1].zero_grad()
            network(torch.ones(2, 4)).sum().backward()
            optimizers[-1].step()
            count()
"""

# A loop that updates its weights itself; a backward pass has another inside, a checkpoint's.
SCRIPTS["by_hand.py"] = r"""
import torch
from counted import count
from torch.utils.checkpoint import checkpoint
network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
while True:
    loss = checkpoint(network, torch.ones(2, 4, requires_grad=True), use_reentrant=True).sum()
    loss.backward()
    count()
    with torch.no_grad():
        for weight in network.parameters():
            weight -= 1e-3 * weight.grad
            weight.grad = None
"""

# A loop of functions: gradients are values, and nothing of torch steps.
SCRIPTS["functional.py"] = r"""
import torch
from counted import count
weight = torch.zeros(4)
gradient = torch.func.grad(lambda weight: ((weight - 1) ** 2).sum())
while True:
    slope = gradient(weight)
    count()
    weight = weight - 1e-3 * slope
"""

# Twenty backward passes accumulate for each step.
SCRIPTS["accumulated.py"] = r"""
import torch
from counted import count
network = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
while True:
    for _ in range(20):
        network(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    count()
"""

# An optimizer that evaluates the loss as often as it likes in a step: more and more often.
SCRIPTS["closures.py"] = r"""
import torch
from counted import count
network = torch.nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(network.parameters(), lr=1e-3)
def closure():
    optimizer.zero_grad()
    loss = (network(torch.randn(8, 4)) ** 2).sum()
    loss.backward()
    return loss
step = 0
while True:
    step += 1
    optimizer.param_groups[0]["max_iter"] = 1 + step % 5
    optimizer.step(closure)
    count()
"""

# Two trainings in threads; the second begins after the first step of the first.
SCRIPTS["threads.py"] = r"""
import os
from pathlib import Path
from threading import Event, Thread
import torch
begun = Event()
def train(file):
    network = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    for step in range(1, 100_000_000):
        network(torch.ones(2, 4)).sum().backward()
        Path(os.environ["COUNT"] + file).write_text(str(step))
        optimizer.step()
        begun.set()
threads = [Thread(target=train, args=[file], daemon=True) for file in ("", ".other")]
threads[0].start()
begun.wait()
threads[1].start()
for thread in threads:
    thread.join()
"""

# A program whose child trains, in a new process.
SCRIPTS["spawning.py"] = r"""
from multiprocessing import get_context
import torch
def train():
    from counted import count
    network = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    while True:
        network(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        count()
if __name__ == "__main__":
    child = get_context("spawn").Process(target=train)
    child.start()
    child.join()
"""

# A training of a given number of steps, and its exit status.
SCRIPTS["short.py"] = r"""
import sys
import time
import torch
network = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
for _ in range(int(sys.argv[1])):
    network(torch.ones(2, 4)).sum().backward()
    time.sleep(0.05)
    optimizer.step()
sys.exit(int(sys.argv[2]))
"""

# A launcher that sets the path of modules anew, as many do.
SCRIPTS["run.sh"] = r"""
export PYTHONPATH=$PWD
python accumulated.py
"""

# A loop without an optimizer of torch, which says itself when a step has ended.
SCRIPTS["by_itself.py"] = r"""
import torch
from counted import count
import advisor
weight = torch.zeros(4, requires_grad=True)
while True:
    weight.sum().backward()
    with torch.no_grad():
        weight -= 1e-3 * weight.grad
    count()
    advisor.step()
"""

# As a GAN trains: two steps of one optimizer, then one of another, with accumulated gradients.
SCRIPTS["two_networks.py"] = r"""
import torch
from counted import count
first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
of_first = torch.optim.SGD(first.parameters(), lr=1e-3)
of_second = torch.optim.SGD(second.parameters(), lr=1e-3)
while True:
    for _ in range(2):
        for _ in range(3):
            second(first(torch.ones(2, 4)).detach()).sum().backward()
        of_second.step()
    second(first(torch.ones(2, 4))).sum().backward()
    of_first.step()
    count()
"""

# As Hugging Face's Trainer steps: autocast, a scaler that skips steps, a scheduler, clipping.
SCRIPTS["scaled.py"] = r"""
import torch
from counted import count
network = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.999**step)
scaler = torch.amp.GradScaler("cpu")
step = 0
while True:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = network(torch.ones(2, 4)).sum()
    if step % 3 == 2:
        loss = loss * float("inf")  # no finite gradient: the scaler skips this step
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
    count()
"""


def write(folder: Path) -> Path:
    """Put the scripts into `folder`, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    return folder
