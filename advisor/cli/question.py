"""The question that the words of a command ask: its jobs, and the advisor that answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Context

from advisor.cli import options
from advisor.cli.output import aside
from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import parse_gpus
from advisor.plan import MOST_GPUS

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.hardware.gpus import Gpu
    from advisor.plan.rules import Conditions
    from advisor.run.mlflow import MlflowLog
    from advisor.workload.job import Job


@dataclass(frozen=True)
class Sources:
    """Options on the basis of predictions: profiles, model, calibration and host."""

    profiles: options.Profiles = None
    models: options.Models = None
    calibration: Path | None = options.option(
        "FILE",
        (
            "Use this result of `advisor calibrate`; default: your own for that GPU; none: no "
            "calibration."
        ),
    )
    host_cores: int | None = options.option(
        "N",
        "Limit the jobs of all GPUs of a host to N cores; default: this machine's if it has the "
        "GPU, else no limit.",
        min=1,
    )

    def advisor(
        self, gpu: str, power_cap_w: float | None = None, *, share_loader: bool = False
    ) -> "Advisor":
        """Return the `Advisor` for `gpu`, which allows for this machine if it has such a GPU."""
        from advisor.run.here import advisor_here

        return advisor_here(
            gpu,
            profiles=self.profiles,
            models=self.models,
            calibration=self.calibration,
            power_cap_w=power_cap_w,
            host_cores=self.host_cores,
            share_loader=share_loader,
        )


def passed(context: Context, *names: str) -> bool:
    """Return whether one of the parameters `names` is on the command line itself."""
    sources = map(context.get_parameter_source, names)
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _typed(context: Context, name: str) -> str:
    """The parameter `name` as people type it."""
    (parameter,) = (each for each in context.command.params if each.name == name)
    return parameter.opts[0] if parameter.param_type_name == "option" else name.upper()


def exclude(context: Context, one: str, *others: str, why: str) -> None:
    """Raise `InvalidInput` with the reason `why` if the parameter `one` is passed with another."""
    for other in others:
        if passed(context, one) and passed(context, other):
            both = f"{_typed(context, one)} and {_typed(context, other)}"
            raise InvalidInput(f"{both} exclude each other: {why}")


def require(context: Context, one: str, *others: str) -> None:
    """Raise `InvalidInput` if the parameter `one` is passed without any of `others`."""
    if passed(context, one) and not passed(context, *others):
        needed = " or ".join(_typed(context, other) for other in others)
        raise InvalidInput(f"{_typed(context, one)} has no effect alone. Add {needed}.")


def chosen_jobs(
    advisor: "Advisor", names: list[str] | None, file: Path | None, gpus: int = 1
) -> "tuple[Job, ...]":
    """Return the jobs with these names or in `file`; without either, examples, with a note."""
    if not names and not file:
        aside(
            "no JOB given: the answer is for examples. Name your own jobs: `advisor profiles` "
            "lists them."
        )
    jobs = advisor.chosen_jobs(names, file, gpus)
    ranks = [job.name for job in jobs if job.data_parallel and job.gpus == 1]
    if gpus > 1 and ranks:
        aside(
            f"data_parallel without gpus: {', '.join(dict.fromkeys(ranks))}. Each counts as one "
            f"process on one GPU. Write gpus = 2 in its [[job]] if it takes two at once."
        )
    return jobs


def protected_jobs(
    jobs: "Sequence[Job]", names: Sequence[str] | None, max_slowdown: float | None
) -> "tuple[Job, ...]":
    """Return `jobs`; the steps of those in `names` may become longer by `max_slowdown` at most.

    Raises:
        InvalidInput: A name is of none of them, or the share is impossible.
    """
    from advisor.plan.rules import MAX_SLOWDOWN
    from advisor.workload.job import check_protection

    most = MAX_SLOWDOWN if max_slowdown is None else max_slowdown
    check_protection("--max-slowdown", most)
    for name in names or ():
        if name not in {job.name for job in jobs}:
            names_of_jobs = ", ".join(dict.fromkeys(job.name for job in jobs))
            raise InvalidInput(f"--protect {name}: no JOB has that name. Write {names_of_jobs}.")
    return tuple(replace(job, protect=most) if job.name in (names or ()) else job for job in jobs)


def confined(gpu: "Gpu", conditions: "Conditions", *, whole: bool) -> "Conditions":
    """Return `conditions` for the MIG instances of this machine's `gpu`, or unchanged without any.

    A line on stderr lists the MIG devices. Plans for the `whole` GPU are not confined to them.

    Raises:
        NothingFits: There is no root and no MIG device, or only parts of divided instances.
    """
    from advisor.hardware.live_gpu import instances_of

    if (there := instances_of(gpu.key)) is None:
        return conditions
    index, profiles = there
    state = f"GPU {index} of this machine is in MIG mode, with {', '.join(profiles) or 'no device'}"
    profiles = tuple(name for name in profiles if name in {each.name for each in gpu.mig})
    if not profiles and not conditions.root:
        raise NothingFits(f"{state}. Let root make undivided instances, or switch MIG mode off.")
    if whole or not profiles:
        aside(
            f"{state}. Plans for the whole GPU need MIG mode off: sudo nvidia-smi -i {index} -mig "
            "0. For plans on the existing instances: --no-root. For plans within one: --gpu "
            f"{gpu.key}-PROFILE."
        )
        return conditions
    aside(
        f"{state}. Plans use these instances as they are; scripts expect the UUIDs of `nvidia-smi "
        "-L` as MIG_1, MIG_2, ... No such plan has run on MIG hardware."
    )
    return replace(conditions, instances=profiles)


def counted_gpus(gpus: str, gpu: str, context: Context, most: int = MOST_GPUS) -> tuple[int, str]:
    """Return the number of GPUs in `gpus`, and the model that has the jobs: `gpu`, or the first.

    Raises:
        InvalidInput: `gpus` is malformed, or a model is named in it and by --gpu.
    """
    counts = parse_gpus(gpus, most)
    total = sum(each.gpus for each in counts)
    if counts[0].gpu is None:
        return total, gpu
    if passed(context, "gpu"):
        raise InvalidInput(f"--gpus {gpus} names the models of all GPUs. Leave --gpu out.")
    return total, counts[0].gpu


def on_checked_host(
    advisor: "Advisor", jobs: "Sequence[Job]", check: bool | None, at_once: int | None = None
) -> "Advisor":
    """Return `advisor` with a `check` of the host for `jobs`; False: without any check.

    None: with its recent check, if as many cores were busy. `at_once` jobs run at the same time;
    default: all.
    """
    at_once = len(jobs) if at_once is None else at_once
    recent = advisor.host_check
    if check is None and recent is not None and recent.busy >= min(at_once, recent.cores):
        return advisor
    if not check:
        return replace(advisor, host_check=None)
    from advisor.measure.device import check_host

    script = next(filter(None, (job.profile.workload.script for job in jobs)), None)
    return replace(advisor, host_check=check_host(at_once, script, aside) or recent)


def mlflow_log(uri: str | None) -> "MlflowLog | None":
    """Return the log at `uri`; None if `uri` is None."""
    if uri is None:
        return None
    from advisor.run.mlflow import MlflowLog

    return MlflowLog(uri)
