"""A program that speaks as nvidia-cuda-mps-control does, without a GPU.

With -f it is the daemon, with -d it starts one and returns; without, it asks the daemon of
CUDA_MPS_PIPE_DIRECTORY what stands on its standard input. It starts its server when the first
client is seen, as the real one does; who is a client stands in a file, since nothing here uses
CUDA, and whom it last listed in another.
"""

import os
import socket
import stat
import sys
from pathlib import Path


def install(folder: Path) -> None:
    """Put the stand-in into `folder`, to be found on PATH."""
    from uuid import uuid4  # not where it is a program, which is to start at once

    from tests.measure.process.disguise import disguised

    program = folder / "nvidia-cuda-mps-control"
    here = Path(__file__).resolve()
    control = disguised("nvidia-cuda-mps-control", ["-I", "-S", str(here)])
    server = disguised("nvidia-cuda-mps-server", ["-c", "'import time; time.sleep(600)'"])
    # In its disguise, a Python no longer knows where it lies: hence its server's command here.
    environment = f'export START_SERVER="{server}"'
    # A daemon for "0" would serve every GPU, also those of tests that run at the same time.
    gpu = f"[[ $CUDA_VISIBLE_DEVICES == GPU-* ]] || export CUDA_VISIBLE_DEVICES=GPU-{uuid4()}"
    program.write_text(f'#!/bin/bash\n{environment}\n{gpu}\n{control} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def become_clients(pipes: Path, pids: list[int]) -> None:
    """Have the daemon's server list `pids`."""
    (pipes / "clients").write_text("".join(f"{pid}\n" for pid in pids))


def _listener(pipes: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(pipes / "control"))
    listener.listen()
    return listener


def _daemon(pipes: Path, listener: socket.socket) -> None:
    server = 0
    with listener:
        while True:
            with listener.accept()[0] as asker:
                if not server and (pipes / "clients").exists():
                    server = _start_server()
                request = asker.recv(100).decode().split()
                asker.sendall(_answer(request, server, pipes).encode())
            if request[0] == "quit":
                if server:
                    os.kill(server, 15)
                    os.waitpid(server, 0)
                return


def _in_background(pipes: Path) -> None:
    listener = _listener(pipes)
    if os.fork():
        return
    os.setsid()
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    _daemon(pipes, listener)
    (pipes / "control").unlink()


def _start_server() -> int:
    return os.spawnv(os.P_NOWAIT, "/bin/bash", ["bash", "-c", os.environ["START_SERVER"]])


def _answer(request: list[str], server: int, pipes: Path) -> str:
    match request:
        case ["get_server_list"]:
            return f"{server}\n" if server else "\n"
        case ["get_client_list", pid] if pid == str(server):
            clients = (pipes / "clients").read_text()
            (pipes / "listed").write_text(clients)
            return clients
        case ["terminate_client", _, client]:
            (pipes / f"terminated-{client}").touch()
            return "\n"
        case _:
            return "\n"


def _ask(pipes: Path) -> int:
    try:
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect(str(pipes / "control"))
            daemon.sendall(sys.stdin.read().encode())
            print(daemon.recv(10_000).decode(), end="")
    except OSError:
        print("Cannot find MPS control daemon process")
        return 1
    return 0


if __name__ == "__main__":
    at = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    match sys.argv[1:]:
        case ["-f"]:
            _daemon(at, _listener(at))
        case ["-d"]:
            _in_background(at)
        case _:
            sys.exit(_ask(at))
