"""What tenants of tests can be asked: to do what real ones do only on a bad day."""

import json
import os
import signal
from pathlib import Path
from time import sleep

from advisor.errors import AdvisorError, UnknownName


def _place(_):
    import torch

    return {
        "cores": sorted(os.sched_getaffinity(0)),
        "mps": {name: value for name, value in os.environ.items() if "CUDA_MPS" in name},
        "threads": torch.get_num_threads(),
    }


def _exhaust(_):
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nAnd so on.")


def _refuse(_):
    raise UnknownName("timm model", "resnet51", ["resnet50"], "See timm's list.")


def _fail(_):
    raise AdvisorError("this cannot be")


ODD_VERBS = {
    "echo": lambda _, word: {"word": word},
    "place": _place,
    "exhaust": _exhaust,
    "refuse": _refuse,
    "fail": _fail,
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "sleep": lambda _: sleep(600) or {},
}


def note_variables(file):
    """Write this process's variables to the file called `file`, as a command that measures."""
    Path(file).write_text(json.dumps(dict(os.environ)))
    return 0
