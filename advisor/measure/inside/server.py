"""A program of our own that only answers requests."""

import json
import os
import socket
from collections.abc import Callable, Generator, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from .feeds import Feeds
from .routines import Routine, Verb, attempt, versions


class Served(Feeds):
    """The memory of a server between two requests.

    Attributes:
        step: Called for each step that a routine asks for.
        notes: Values that verbs keep for later requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step: Callable[[], object] | None = None
        self.notes: dict[str, Any] = {}


def serve(address: str, verbs: Mapping[str, Verb]) -> None:
    """Answer requests from the process that listens at `address`, until it hangs up."""
    served = Served()
    ours = socket.socket(socket.AF_UNIX)
    ours.connect(address)
    with Connection(ours.detach()) as connection:
        hello = {"pid": os.getpid(), "versions": versions()}
        connection.send_bytes(json.dumps(hello).encode())
        while True:
            try:
                request = json.loads(connection.recv_bytes())
            except (EOFError, OSError):
                return
            verb = verbs[request["verb"]]
            answer = attempt(partial(_answer, served, verb, request["arguments"]))
            connection.send_bytes(json.dumps(answer).encode())
            if answer[0] == "ended":
                return


def _answer(served: Served, verb: Verb, arguments: Mapping[str, Any]) -> dict[str, Any]:
    answer = verb(served, **arguments)
    return _stepped(served, answer) if isinstance(answer, Generator) else answer


def _stepped(served: Served, routine: Routine) -> dict[str, Any]:
    """Step as often as `routine` asks; return its answer."""
    try:
        next(routine)
        while True:
            if served.step is None:
                raise RuntimeError("nothing to step was loaded")
            served.step()
            routine.send(True)
    except StopIteration as end:
        answer: dict[str, Any] = end.value
        return answer
