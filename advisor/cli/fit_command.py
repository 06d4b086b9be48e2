"""``advisor fit``: what runs teach."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import MeasuredOptions, grouped
from advisor.cli.output import progress, show_text
from advisor.english import counted
from advisor.terminal import clean

if TYPE_CHECKING:
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run


@grouped
def fit(
    measured: MeasuredOptions,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of models to write to; default: your own."),
    ] = None,
) -> None:
    """Fit the model of a GPU to every run on it, yours included."""
    from advisor.hardware.catalogue import gpu as known
    from advisor.measure.process.cores import allowed_cores
    from advisor.prediction.fit.fit_model import fit as fitted
    from advisor.prediction.fit.surrogate_fit import with_surrogate
    from advisor.prediction.model_file import model_text
    from advisor.workload.files import user_folder
    from advisor.workload.writing import writable, write_whole

    card = known(measured.gpu)
    path = (out or user_folder("models")) / f"{measured.gpu}.json"
    writable(path)  # before a minute of fitting
    alone, shipped, own = measured.read()
    with progress() as tell:
        tell(0, 2, f"fitting to {counted(len(shipped + own), 'run')}")
        model = fitted(alone, shipped + own, card)
        tell(1, 2, "teaching quick answers")
        model = with_surrogate(model, list(alone.values()), card, processes=len(allowed_cores()))
        tell(2, 2, "fitted")
    write_whole(path, model_text(model))
    show_text(
        f"{clean(str(path))}: fitted to {counted(model.data.runs, 'run')} of "
        f"{counted(model.data.profiles, 'profile')}."
    )
    _show_runs(alone, shipped, own)


def _show_runs(alone: "dict[str, Profile]", shipped: "Sequence[Run]", own: "Sequence[Run]") -> None:
    """How many of the runs were used, and whether all were made with the same software."""
    from advisor.prediction.fit.observation import shared_runs
    from advisor.workload.staleness import odd_ones

    used = [len(shared_runs(alone, runs)) for runs in (shipped, own)]
    show_text(
        f"Used: {used[0]} of {counted(len(shipped), 'run')} that came with the profiles, "
        f"{used[1]} of {len(own)} of your own."
    )
    if odd := odd_ones([run.provenance for run in (*shipped, *own)]):
        show_text(f"Not all alike: {odd}.")
