"""A tenant as the process that started it sees it: takes requests, gives answers, or has ended."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.process.worker import TenantSetup

# A big model on a busy GPU; the first tenant also waits for the imports.
LOAD_S = 300.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tenant ended before it was asked to."""

    outcome: Literal["out-of-memory", "died"]
    detail: str


Answer = dict[str, Any] | Ended


def living(answer: Answer, remedy: str = "") -> dict[str, Any]:
    """`answer`, if its tenant still runs.

    Raises:
        AdvisorError: The tenant ran out of memory or died; the message ends with `remedy`.
    """
    if isinstance(answer, Ended):
        raise AdvisorError(f"{answer.outcome}: {answer.detail}{remedy}")
    return answer


def error_of(code: int, message: str) -> AdvisorError:
    """The error that another process met, by its exit code."""
    known = {each.exit_code: each for each in (InvalidInput, GpuUnavailable)}
    return known.get(code, AdvisorError)(message)


class TenantHandle(ABC):
    """One tenant, alive until it is stopped or ends by itself.

    Attributes:
        setup: Where it runs.
        pid: Its process; 0 before a script has been started.
        versions: ``torch``, ``cuda`` and ``timm``, each a version or None; empty if it ended
            before it could say, or is no Python.
        ended: None while it lives.
    """

    def __init__(self, setup: TenantSetup) -> None:
        self.setup = setup
        self.pid = 0
        self.versions: dict[str, str | None] = {}
        self.ended: Ended | None = None

    @abstractmethod
    def send(self, verb: str, **arguments: Any) -> None:
        """Send a request without waiting; `receive` returns the answer."""

    @abstractmethod
    def receive(self, timeout_s: float) -> Answer:
        """Its answer, or how it ended; it is killed if it does not answer in time.

        Raises:
            InvalidInput: It refused the user's request.
        """

    @abstractmethod
    def end_by(self, deadline: float) -> None:
        """Wait until `deadline` (monotonic seconds) for it to end, then end it by force."""

    def pin(self, cores: tuple[int, ...]) -> None:
        """Move it to `cores`."""
        self.setup = replace(self.setup, cores=cores)

    def ask(self, verb: str, timeout_s: float = LOAD_S, **arguments: Any) -> Answer:
        """Send a request and wait for the answer."""
        self.send(verb, **arguments)
        return self.receive(timeout_s)

    def _parsed(self, answer: Any) -> Answer | None:
        """The answer in what it sent; None: it sent nothing."""
        match answer:
            case ["done", dict() as value]:
                return value
            case ["refused", int() as code, str() as message]:
                raise error_of(code, message)
            case ["ended", "out-of-memory" | "died" as outcome, str() as detail]:
                return self._end(outcome, detail)
            case _:
                return None

    def _end(self, outcome: Literal["out-of-memory", "died"], detail: str) -> Ended:
        self.ended = Ended(outcome, detail)
        return self.ended
