"""The data loader that tenants of one run share: their own command, started once more for it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic

from advisor.measure.own_files import Place, place_for
from advisor.measure.script import StartedScript
from advisor.measure.tenant import TenantSetup, setup_of
from advisor.workload.spec import Workload

# Seconds that the loader of tenants which have ended takes to see that, and to end.
_ENDING_S = 5.0


@contextmanager
def with_loader(
    setups: Sequence[TenantSetup],
    workloads: Sequence[Workload],
    folder: Path,
) -> Iterator[tuple[TenantSetup, ...]]:
    """Start the loader of those that share one, and yield `setups` that use it; end it at last.

    It sees the GPU as the first of them does. Its files lie in `folder`, a short path.
    """
    sharers = [at for at, each in enumerate(workloads) if each.shared_loader]
    if len(sharers) < 2:
        yield tuple(setups)
        return
    place = Path(mkdtemp(prefix="l", dir=folder))  # which only this user can enter
    own = {"ADVISOR_LOADER": str(place)}
    first = setups[sharers[0]]
    loader = _setup(first, workloads[sharers[0]], own | {"ADVISOR_LOADER_JOBS": str(len(sharers))})
    temporary = Path(mkdtemp(prefix="l", dir=folder))
    running = StartedScript(
        loader.script,
        temporary,
        {**loader.environment, **({"TMPDIR": str(temporary)} if loader.ours else {})},
        place=Place(folder) if loader.ours else place_for(loader.script, folder / "loader"),
        piped=False,
        writable=loader.line is not None,
    )
    try:
        if loader.line is not None:
            running.write_line(loader.line)
        yield tuple(
            _setup(setup, workload, own) if at in sharers else setup
            for at, (setup, workload) in enumerate(zip(setups, workloads, strict=True))
        )
    finally:
        running.interrupt()
        running.end_by(monotonic() + _ENDING_S)


def _setup(setup: TenantSetup, workload: Workload, more: Mapping[str, str]) -> TenantSetup:
    return setup_of(workload, setup.device, {**setup.environment, **more})
