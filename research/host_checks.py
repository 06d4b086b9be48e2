"""How much of what a check of the host promises, made just before a plan runs, comes true.

    python -m research.host_checks

reads what `advisor run` measured of scripts on several hosts (`research.script_score`), as planned
after a check beforehand and as predicted from the profiles alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.script_table import committed

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Host:
    """Steps on one host, logs over what the profiles alone predict, shape (steps,).

    Attributes:
        promised: As planned after the check.
        came: As measured.
    """

    promised: Floats
    came: Floats

    def error(self, share: float) -> Floats:
        """By how much steps are off if that share of what was promised is believed."""
        return np.asarray(np.abs(np.exp(share * self.promised - self.came) - 1))


def hosts() -> dict[str, Host]:
    """All steps that were planned and run, by host."""
    return {where: _host(found) for where, found in committed("scripts")["by_commands"].items()}


def _host(found: Mapping[str, Any]) -> Host:
    alone_s = {_of(each): each["p50_s"] for each in found["by_runs_before"]["profiles alone"]}
    steps = [each for each in found["by_plan"] if _of(each) in alone_s]
    before_s = np.array([alone_s[_of(each)] for each in steps])
    planned_s, measured_s = (
        np.array([each[name] for each in steps]) for name in ("p50_s", "measured_s")
    )
    return Host(np.log(planned_s / before_s), np.log(measured_s / before_s))


def _of(step: Mapping[str, Any]) -> tuple[str, str, float]:
    return step["sharing"], step["script"], round(step["measured_s"], 9)


def share(of: list[Host]) -> float:
    """The share of what was promised with which logs of steps come nearest to those measured."""
    promised, came = (np.concatenate([getattr(each, name) for each in of])
                      for name in ("promised", "came"))  # fmt: skip
    return float((promised * came).sum() / (promised * promised).sum())


def left_out(of: Mapping[str, Host]) -> Floats:
    """Errors on each host by the share that the others tell, shape (steps,)."""
    return np.concatenate([
        host.error(share([each for other, each in of.items() if other != where]))
        for where, host in of.items()
    ])  # fmt: skip


def main() -> None:
    found = hosts()
    whole, none = (np.concatenate([each.error(part) for each in found.values()])
                   for part in (1.0, 0.0))  # fmt: skip
    print(
        f"{len(whole)} steps on {len(found)} hosts: {share([*found.values()]):.2f} of what checks "
        f"promised came true. With each host left out of that, steps are "
        f"{100 * left_out(found).mean():.1f} % off; with all of it {100 * whole.mean():.1f} %, "
        f"with nothing of it {100 * none.mean():.1f} %."
    )


if __name__ == "__main__":
    main()
