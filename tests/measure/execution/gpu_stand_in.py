"""``advisor.execution`` on a machine that has one GPU, which is none: nothing here uses CUDA.

What MPS does of it is the stand-in of ``tests.measure.process.mps_stand_in``, found on PATH. A job
is its client in name: it enters itself in the list, and ends where its server does or lets it go.
"""

import os
import subprocess
import sys
from pathlib import Path
from time import sleep
from unittest.mock import patch

from advisor.errors import InvalidInput
from advisor.measure.execution import execution_command, watching
from advisor.measure.process.claimed_device import Device, Meter, refuse_strangers

UUID = "ADVISOR_TEST_GPU"
CPU = Device("cpu", None, "cpu", "none", None)


def device(asked):
    uuid = os.environ[UUID]
    if asked not in ("0", uuid):
        raise InvalidInput(f"no GPU {asked} here")
    return Device("cuda", uuid, "h200-141gb", "NVIDIA H200", "580.0")


def main():
    with (
        patch.object(execution_command, "device_at_hand", device),
        patch.object(watching, "refuse_busy", refuse_strangers),
        patch.object(watching, "Meter", lambda _device: Meter(CPU)),
    ):
        return execution_command.main(sys.argv[1:])


def client_step():
    """A step of a client of the MPS server in whose pipes it finds itself."""
    pipes = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    if pipes.name == "no-mps":
        return lambda: sleep(0.02)
    with (pipes / "clients").open("a") as clients:
        clients.write(f"{os.getpid()}\n")
    asked = subprocess.run(
        ["nvidia-cuda-mps-control"],
        input="get_server_list\n",
        text=True,
        capture_output=True,
        check=True,
    )
    server = int(asked.stdout)

    def step():
        if not Path(f"/proc/{server}/environ").exists() or not _lives(server):
            sys.exit("CUDA error: the MPS server has ended")
        if (pipes / f"terminated-{os.getpid()}").exists():
            sys.exit("CUDA error: CUDA_ERROR_MPS_CLIENT_TERMINATED")
        sleep(0.02)

    return step


def _lives(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


if __name__ == "__main__":
    sys.exit(main())
