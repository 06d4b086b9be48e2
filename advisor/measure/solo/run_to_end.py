"""Profiles a program whose only step is its whole run, from its start to its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.tenants import memory_record, tenants_on
from advisor.measure.solo.profiling_verbs import profiling_verbs
from advisor.measure.solo.solo_pace import SoloPace, Stopwatch, asked, known
from advisor.sharing import Naive
from advisor.workload.measured import Window
from advisor.workload.plausible import DAY_S
from advisor.workload.spec import Workload

_LOOK_S = 0.2


def pace_to_end(
    workload: Workload, session: MpsSession, cores: tuple[int, ...], watch: Stopwatch
) -> SoloPace:
    """The pace of `workload`, a program that is run to its end.

    Raises:
        AdvisorError: It failed, or took a day.
    """
    setups = session.setups(Naive(), [cores], [workload])
    meter = Meter(session.device)
    with tenants_on(setups, session.folder, profiling_verbs) as (tenant,):
        meter.begin()
        asked(tenant, "load", workload=workload)
        with _most_memory(meter) as held:
            answer = asked(tenant, "train_to_end", timeout_s=DAY_S)
        activity, clocks_mhz = meter.end(), meter.clocks_mhz()
    watch.lap("windows_s")
    wall_s = answer["completed_at"][-1] - answer["began_at"]
    return SoloPace(
        windows=(Window(wall_s, 1.0),),
        host_cpu_share=answer["cpu_s"] / (wall_s * len(cores)),
        activity=activity,
        clocks_mhz=clocks_mhz,
        memory=known(memory_record(answer["memory"], max(held, default=None))),
        host_check_s=None,
        meter_s=0.0,
    )


@contextmanager
def _most_memory(meter: Meter) -> Iterator[list[float]]:
    """What the only process on a device held, MiB, as often as it was looked at meanwhile."""
    held: list[float] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            held.extend(meter.memory_mib().values())

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield held
    finally:
        ended.set()
        thread.join()
