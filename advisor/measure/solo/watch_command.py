"""``advisor watch PID``: what NVML tells of a job that runs already, as a minimal profile."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from advisor.errors import GpuUnavailable, InvalidInput
from advisor.hardware.gpu_state import Activity, LiveGpu
from advisor.measure.process.supervisor import say
from advisor.measure.solo.from_numbers import refuse_fuller
from advisor.workload.files import reason_of, user_folder
from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.writing import new_path, write_whole

_LOOK_S = 0.5


def run(argv: Sequence[str]) -> int:
    """Watch the process that `argv` names, and write what was seen; 0.

    Raises:
        GpuUnavailable: No GPU here lists that process, or there is no driver.
        InvalidInput: Its pace is not said and cannot be read, or a fuller profile is there.
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    asked = _parser().parse_args(argv)
    gpu = _gpu_of(asked.pid)
    if gpu.catalogue_key is None:
        raise InvalidInput(f"{gpu.product} is not in the catalogue, nor described by its driver")
    asked.name = asked.name or _name_of(asked.pid)
    path = (asked.out or user_folder("profiles") / gpu.catalogue_key) / f"{asked.name}.json"
    refuse_fuller(path)
    minimal = _watched_profile(asked, gpu, gpu.catalogue_key)
    write_whole(path, minimal_text(minimal))
    say(f"  {minimal.step_s * 1e3:.2f} ms a step, {minimal.memory_mib:,.0f} MiB\n  {path}")
    return 0


def _watched_profile(asked: argparse.Namespace, gpu: LiveGpu, key: str) -> MinimalProfile:
    log = None if asked.throughput is None else _Log(asked.log or _output_of(asked.pid))
    activity, memory_mib = _watched(gpu, asked.pid, asked.seconds)
    counters, alone = activity.counters, len(gpu.processes) == 1
    if not alone:
        say("  other processes use this GPU, so its power and utilisation say nothing of this one")
    if memory_mib is None:
        raise GpuUnavailable(f"the driver does not say what process {asked.pid} holds. Run as root")
    return MinimalProfile(
        schema=1, workload=asked.name, gpu=key, batch_size=asked.batch_size,
        step_s=asked.step_s if log is None else asked.batch_size / log.rate(asked.throughput),
        memory_mib=memory_mib,
        power_w=activity.power_w if alone else None,
        gpu_utilization=counters.gract if alone and counters is not None else None,
        memory_utilization=counters.memory_utilization if alone and counters is not None else None,
        examples_per_epoch=asked.examples_per_epoch,
    )  # fmt: skip


def _gpu_of(pid: int) -> LiveGpu:
    from advisor.hardware.live_gpu import live_gpus

    for each in live_gpus():
        if isinstance(each, LiveGpu) and pid in {process.pid for process in each.processes}:
            return each
    raise GpuUnavailable(
        f"no GPU here lists process {pid}. Look for it with nvidia-smi: in a container the driver "
        f"may number processes otherwise, so watch from outside, or use `advisor profile --`."
    )


def _watched(gpu: LiveGpu, pid: int, seconds: float) -> tuple[Activity, float | None]:
    """The GPU's activity meanwhile, and the most that the process held, MiB."""
    from advisor.hardware.counters import ActivitySampler
    from advisor.hardware.live_gpu import process_memory_mib

    sampler = ActivitySampler(gpu.uuid)
    sampler.begin()
    held: list[float] = []
    until = monotonic() + seconds
    while monotonic() < until:
        sleep(min(_LOOK_S, seconds))
        found = process_memory_mib(gpu.uuid)
        held += [found[pid]] if pid in found else []
    return sampler.end(), max(held, default=None)


class _Log:
    """A file that a job prints to, from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._from = path.stat().st_size
        except OSError as error:
            raise InvalidInput(f"{path}: {reason_of(error)}. Name its log: --log.") from None

    def rate(self, throughput: str) -> float:
        """Median of the examples a second that it said since.

        Raises:
            InvalidInput: It said none.
        """
        with self._path.open("rb") as file:
            file.seek(self._from)
            text = file.read(2**24).decode(errors="replace")
        found = [float(each) for each in re.findall(throughput, text) if _above_0(each)]
        if not found:
            raise InvalidInput(
                f"{self._path}: nothing that {throughput!r} finds was printed meanwhile. Watch for "
                f"longer (--seconds), or say --step-s."
            )
        return median(found)


def _above_0(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


def _output_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/fd/1").resolve()


def _name_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return Path(next((word for word in words if word.endswith(".py")), words[0])).stem


def _regex(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise argparse.ArgumentTypeError(f"no regular expression: {error}") from None
    if groups != 1:
        raise argparse.ArgumentTypeError("one group finds the figure, e.g. '([0-9.]+) images/s'")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor watch",
        description="Reads what the driver tells of a process that trains already (memory; power "
        "and utilisation, where no other process uses its GPU) into a profile of bare numbers. "
        "Answers for it have wider ranges than for a script that `advisor profile --` measured.",
    )
    add = parser.add_argument
    add("pid", type=int, metavar="PID", help="as nvidia-smi lists it")
    add("--name", help="what the job is called [its script]")
    pace = parser.add_mutually_exclusive_group(required=True)
    pace.add_argument("--step-s", type=float, metavar="S", help="seconds of a training step")
    pace.add_argument("--throughput", type=_regex, metavar="REGEX", help="finds, as its one group, "
        "the examples a second in what it prints")  # fmt: skip
    add("--log", type=Path, metavar="FILE", help="where it prints [its standard output]")
    add("--batch-size", type=int, default=1, metavar="N", help="examples a step [1]")
    add("--examples-per-epoch", type=int, metavar="N", help="for epoch times")
    add("--seconds", type=float, default=10.0, metavar="S", help="how long to watch [10]")
    add(
        "--out", type=new_path, metavar="DIR", help="folder of profiles [your own, read by advisor]"
    )
    return parser
