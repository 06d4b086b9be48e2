"""Objectives of studies that tests run: each records where it ran."""

import os
import signal
import subprocess
from pathlib import Path
from time import sleep

from optuna.samplers import RandomSampler


def told(trial):
    """A quick trial that says where it ran, and under MPS becomes a client.

    Where there is a folder to meet in, a process's first trial waits there for another process.
    """
    trial.set_user_attr("pid", os.getpid())
    trial.set_user_attr("cores", sorted(os.sched_getaffinity(0)))
    trial.set_user_attr("mps", {key: word for key, word in os.environ.items() if "CUDA" in key})
    x = trial.suggest_float("x", -1.0, 1.0)
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nowhere"))
    if (pipes / "control").exists():
        with (pipes / "clients").open("a") as clients:
            clients.write(f"{os.getpid()}\n")
    if "MEET" in os.environ:
        _meet(Path(os.environ["MEET"]))
    while (pipes / "control").exists() and len(_listed(pipes)) < 2:
        sleep(0.02)
    return x * x


def _meet(folder):
    (folder / f"{os.getpid()}").touch()
    while len(list(folder.iterdir())) < 2:
        sleep(0.02)


def _listed(pipes):
    """The clients that were named to whoever asked for them."""
    listed = pipes / "listed"
    return listed.read_text().split() if listed.exists() else []


def bad_days(trial):
    """The second trial raises, the third is killed, the fifth has no value."""
    value = told(trial)
    match trial.number:
        case 1:
            raise RuntimeError("CUDA error: out of memory")
        case 2:
            os.kill(os.getpid(), signal.SIGKILL)
        case 4:
            return float("nan")
    return value


def always_fails(_trial):
    raise ValueError("no such column")


def endless(trial):
    """Starts a process of its own, as a loader does, and says so; never ends."""
    child = os.fork()
    if child == 0:
        sleep(600)
        os._exit(0)
    folder = Path(os.environ["TOLD"])
    (folder / f"{os.getpid()}").touch()
    (folder / f"{child}").touch()
    trial.suggest_float("x", -1.0, 1.0)
    sleep(600)


def starts_a_program(trial):
    """Trains in a program of its own, which it does not wait for."""
    started = subprocess.Popen(["sleep", "600"], start_new_session=True)
    trial.set_user_attr("started", started.pid)
    return 0.0


def sampler():
    return RandomSampler(seed=0)
