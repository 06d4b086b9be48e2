"""``python -m advisor.collocation``: runs plans one after another, appending each to a file."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.measure.process.claimed_device import device_at_hand
from advisor.measure.process.cores import allowed_cores
from advisor.measure.process.option_numbers import ABOVE_0, option_number
from advisor.measure.process.provenance import command_line
from advisor.measure.process.supervisor import say
from advisor.measure.process.windows import Timing
from advisor.measure.shared.bench import Bench, bench_on, cores_of_tenants
from advisor.measure.shared.planned_run import Measurable, mixes_of
from advisor.measure.shared.run_list_file import read_plans
from advisor.workload.documents import parse_json
from advisor.workload.files import read_bytes
from advisor.workload.run import Run
from advisor.workload.writing import append_run, new_path, writable

# Assumed seconds of a run before the first has been measured.
FIRST_RUN_S = 15.0

_REMEDY = "Correct the file, or choose another --out."


def main(argv: Sequence[str]) -> int:
    """Run the plans that the command line `argv` names; the exit code."""
    asked = _parser().parse_args(argv)
    timing = Timing(asked.settle, asked.window, asked.windows)
    device = device_at_hand(asked.device)
    writable(asked.out)
    plans = read_plans(asked.plans, device.key)
    wanted = [mix for plan in plans for mix in mixes_of(plan)]
    todo = _without_done(wanted, asked.out, resume=asked.resume)
    allowed = allowed_cores(asked.cores)
    for mix in todo:
        cores_of_tenants(
            mix, allowed, device.kind, share=asked.share_cores
        )  # refused before anything starts
    command = command_line("advisor.collocation", argv)
    with bench_on(device, allowed, timing, command, share=asked.share_cores) as bench:
        _measure_all(todo, bench, asked.out, asked.deadline)
    return 0


def _measure_all(
    todo: Sequence[Measurable], bench: Bench, out: Path, deadline_s: float | None
) -> None:
    """Measure the runs, until all are done or the next would end after `deadline_s`."""
    began, run_s = monotonic(), FIRST_RUN_S
    for number, mix in enumerate(todo, start=1):
        run_began = monotonic()
        if deadline_s is not None and run_began - began + run_s > deadline_s:
            left = counted(len(todo) - number + 1, "run")
            say(f"{left} left at the deadline; --resume does them")
            return
        run = bench.measure(mix)
        append_run(out, run)
        run_s = (monotonic() - began) / number  # so far on average
        say(
            f"{number}/{len(todo)} {run_summary(run)} {monotonic() - run_began:.1f} s; "
            f"about {run_s * (len(todo) - number):.0f} s left"
        )


def run_summary(run: Run) -> str:
    """`run` in one line: its id, its sharing and how its tenants ended."""
    failed = [tenant for tenant in run.tenants if tenant.outcome != "ok"]
    what = "ok" if not failed else f"{failed[0].outcome} ({failed[0].detail})"
    return f"{run.id} {run.sharing} x{len(run.tenants)}, {what},"


def _without_done(wanted: Sequence[Measurable], out: Path, *, resume: bool) -> list[Measurable]:
    done = {record["id"] for record in records_in(out)} if out.exists() else set()
    todo = [mix for mix in wanted if mix.id not in done]
    if len(todo) < len(wanted) and not resume:
        raise InvalidInput(
            f"{out}: has {len(wanted) - len(todo)} of these runs already. Add --resume to do "
            f"only the others, or choose another --out."
        )
    return todo


def records_in(path: Path) -> list[dict[str, Any]]:
    """The runs in a JSON Lines file as they are written there; checks only that each has an id.

    Raises:
        InvalidInput: A line is not a run.
    """
    records = []
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        where = f"{path}:{number}"
        record = parse_json(line, where, _REMEDY)
        if not isinstance(record, dict) or not isinstance(record.get("id"), str):
            raise InvalidInput(f"{where}: not a run. {_REMEDY}")
        records.append(record)
    return records


_SECONDS = option_number(float, lambda value: 0 <= value <= 3600, "between 0 and 3600 seconds")
_COUNT = option_number(int, lambda value: 1 <= value <= 100, "between 1 and 100")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m advisor.collocation",
        description="Runs plans for real, together on one GPU, and records what each job did.",
    )
    add = parser.add_argument
    add("plans", type=Path, help="JSON file of plans, or what `advisor recommend --json` printed "
        "(plans on MIG are left out)")  # fmt: skip
    add("--device", default="0", help="GPU index or UUID, or cpu to try out [0]")
    add("--out", type=new_path, required=True, help="JSON Lines file to which runs are added")
    add("--cores", help="host cores for tenants, e.g. 0-15 [all]")
    add("--share-cores", action="store_true", help="where these are too few, let tenants share")
    add("--settle", type=_SECONDS, default=0.7, help="seconds of training before windows [0.7]")
    add("--window", type=ABOVE_0, default=1.0, help="seconds of a window, at least [1.0]")
    add("--windows", type=_COUNT, default=3, help="windows of a run [3]")
    add("--resume", action="store_true", help="skip runs that --out has already")
    add("--deadline", type=ABOVE_0, help="begin no run that would end after these seconds")
    return parser
