"""A thread in a user's program that answers requests while the program goes on.

It serves programs in which nobody finds steps: what is asked must not need their own thread. Each
Python of such a program has one once it has imported torch.
"""

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from threading import Thread

from advisor.measure.process.worker import TenantState, attempted


def begin(settings: Mapping[str, str]) -> None:
    """Connect to whoever started the program, and answer until it hangs up.

    Args:
        settings: ``address`` and ``verbs``; see `advisor.measure.process.script_hook.VARIABLE`.
    """
    ours = socket.socket(socket.AF_UNIX)
    try:
        ours.connect(settings["address"])
    except OSError:  # nobody measures any more
        return
    connection = Connection(ours.detach())
    Thread(target=_serve, args=(connection, settings["verbs"]), daemon=True).start()


def _serve(connection: Connection, verbs: str) -> None:
    module, _, function = verbs.partition(":")
    with connection, suppress(EOFError, OSError):
        while True:
            request = json.loads(connection.recv_bytes())
            verb = getattr(import_module(module), function)()[request["verb"]]
            answer = attempted(partial(verb, state=_state(), **request["arguments"]))
            connection.send_bytes(json.dumps(answer).encode())


def _state() -> TenantState:
    """Of this process, which may not have touched CUDA yet."""
    import torch

    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return TenantState("cuda" if on_gpu else "cpu")
