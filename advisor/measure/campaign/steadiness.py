"""Compares repeated measurements: solo runs with profiles, repeats with their originals."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from advisor.english import counted, is_or_are
from advisor.errors import InvalidInput
from advisor.measure.campaign.draw import idle_twin
from advisor.workload.documents import read_json
from advisor.workload.files import profile_files
from advisor.workload.measured import Window, median_step_s

# A solo run that differs from its profile by more than this share does not repeat it.
STEADY_WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class _RunPace:
    """The run that a run should repeat, and each tenant's workload and seconds a step."""

    like: str | None
    solo: bool
    steps_s: tuple[tuple[str, float], ...]


class Steadiness:
    """Collects runs and profiles as read from their files, and compares them.

    Args:
        profiles: Folders of profiles; of two with one name, the first folder's counts.

    Attributes:
        refused: Why a file of these folders is not a profile, by its workload's name.
    """

    def __init__(self, profiles: Iterable[Path]) -> None:
        self._alone_s: dict[str, float] = {}
        self._paces: dict[str, _RunPace] = {}
        self.refused: dict[str, str] = {}
        for folder in reversed(list(profiles)):
            for path in profile_files(folder):
                try:
                    self.learn(path)
                except InvalidInput as error:
                    self.refused[path.stem] = str(error)

    @property
    def profiled(self) -> frozenset[str]:
        """Workloads of which there is a profile."""
        return frozenset(self._alone_s)

    def learn(self, path: Path) -> None:
        """Add the profile in the file `path`.

        Raises:
            InvalidInput: It is not a profile.
        """
        remedy = "Measure it again, or move it out of this folder."
        measured = read_json(path, remedy)
        try:
            self._alone_s[path.stem] = _step_s(measured)
        except (InvalidInput, TypeError, KeyError):
            raise InvalidInput(f"{path}: not a profile. {remedy}") from None
        self.refused.pop(path.stem, None)

    def note(self, record: Mapping[str, Any]) -> None:
        """Add a run; one with a tenant that ended early is ignored.

        Raises:
            InvalidInput: It is not a run.
        """
        try:
            self._note(record)
        except (AttributeError, TypeError, KeyError):
            raise InvalidInput(
                f"run {record['id']} is incomplete. Correct its file, or choose another --out."
            ) from None

    def _note(self, record: Mapping[str, Any]) -> None:
        tenants = record.get("tenants") or ()
        if not tenants or any(tenant["outcome"] != "ok" for tenant in tenants):
            return
        purpose = record.get("purpose")
        twin = idle_twin(record["id"]) if purpose == "control" else None
        steps_s = tuple((each["workload"]["name"], _step_s(each)) for each in tenants)
        like = record.get("repeats") or (twin if twin != record["id"] else None)
        self._paces[record["id"]] = _RunPace(like, purpose == "solo", steps_s)

    def short(self) -> str:
        """The number of solo runs that repeat their profiles, for a line of progress."""
        apart = [each for solos in self._solos().values() for each in solos]
        steady = sum(each <= STEADY_WITHIN for each in apart)
        return f"{steady}/{counted(len(apart), 'solo run')} within {STEADY_WITHIN:.0%}"

    def summary(self) -> str:
        """All comparisons, a line each."""
        solos = self._solos()
        steady = sum(median(each) <= STEADY_WITHIN for each in solos.values())
        lines = [
            f"{self.short()} of the profile; so {is_or_are(steady)} {steady}/"
            f"{counted(len(solos), 'workload')}"
        ]
        for kind, control in (("repeats", False), ("busy against idle neighbours", True)):
            if apart := self._twins(control):
                lines.append(
                    f"{kind}: median difference {median(apart):.1%} of "
                    f"{counted(len(apart), 'step')}"
                )
        return "\n".join(lines)

    def _solos(self) -> dict[str, list[float]]:
        """Differences of each workload's solo runs from its profile, as shares."""
        apart = defaultdict(list)
        for pace in tuple(self._paces.values()):
            for name, step_s in pace.steps_s:
                if pace.solo and name in self._alone_s:
                    apart[name].append(abs(step_s / self._alone_s[name] - 1))
        return apart

    def _twins(self, control: bool) -> list[float]:
        """Differences of steps between runs and the runs that they repeat, as shares."""
        pairs = [
            (pace, self._paces[pace.like])
            for name, pace in self._paces.items()
            if pace.like in self._paces and (idle_twin(name) == pace.like) is control
        ]
        return [
            abs(mine_s / its_s - 1)
            for pace, other in pairs
            for (_, mine_s), (_, its_s) in zip(pace.steps_s, other.steps_s, strict=True)
        ]


def _step_s(measured: Mapping[str, Any]) -> float:
    return median_step_s(tuple(Window(**window) for window in measured["windows"]))
