"""Which options go together: what a command would ignore beside another is refused."""

from collections.abc import Iterable, Mapping

import typer

from advisor.errors import InvalidInput

Given = dict[str, str]
"""What a command line itself says, by the parameter: the option as it is typed, or the word."""


def given_in(context: typer.Context) -> Given:
    """What the command line of `context` says; defaults and the environment say nothing."""
    said = {}
    for each in context.command.params:
        name = each.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            argument = each.param_type_name == "argument"
            said[name] = name.upper() if argument else max(each.opts, key=len)
    return said


def apart(given: Given, one: str, others: Iterable[str], why: str) -> None:
    """See that `one` is not given beside any of `others`.

    Raises:
        InvalidInput: It is; says `why` they do not go together.
    """
    if one not in given:
        return
    for other in others:
        if other in given:
            raise InvalidInput(f"{given[one]} and {given[other]} do not go together: {why}")


def needs(given: Given, one: str, others: Mapping[str, str]) -> None:
    """See that `one` is given only beside one of `others`, options by their parameters.

    Raises:
        InvalidInput: It is given alone.
    """
    if one in given and not set(others) & set(given):
        listed = " or ".join(others.values())
        raise InvalidInput(f"{given[one]} says nothing alone: it needs {listed}.")


def check_recommend(given: Given) -> None:
    """What `advisor recommend` can answer at all.

    Args:
        given: As `given_in` has it; ``auto`` is a JOB:auto, ``gpus`` more than one.

    Raises:
        InvalidInput: An option would be ignored.
    """
    apart(given, "commands", ("as_json",), "shell lines of one plan are printed alone.")
    apart(given, "auto", _NOT_OF_COPIES, "how many copies pay is asked of one JOB on one GPU.")
    needs(given, "running_sharing", _RUNS)
    needs(given, "hurt", _RUNS)
    apart(given, "now", ("running_sharing",), "--now reads from the driver how the GPU is shared.")
    for runs in _RUNS:
        apart(given, runs, ("gpus", "time_limit"), "jobs join those that run on one GPU.")
    if "now" not in given:
        apart(given, "running", ("device",), "--device is asked with --now; --running tells.")
    apart(given, "device", ("gpus",), "several GPUs are numbered from 0.")
    needs(given, "device", {"now": "--now", "commands": "--commands", "as_json": "--json"})


_RUNS = {"running": "--running", "now": "--now"}
_NOT_OF_COPIES = (
    "job_file", "running", "now", "running_sharing", "hurt", "device", "gpus", "time_limit",
    "commands", "top",
)  # fmt: skip


def check_additions(given: Given) -> None:
    """What `advisor recommend` can answer of jobs that join others, which do run.

    Raises:
        InvalidInput: An option would be ignored.
    """
    for runs in _RUNS:
        apart(given, runs, ("commands",), "commands are of plans whose jobs start together.")
        apart(
            given, runs, ("pessimistic",),
            "what joins a GPU is judged by how much it slows what runs there. Allow less with "
            "--hurt.",
        )  # fmt: skip


def check_validate(given: Given) -> None:
    """What `advisor validate` can do.

    Raises:
        InvalidInput: An option would be ignored.
    """
    of_running = ("jobs", "job_file", "dry_run", "objective", "top", "device")
    apart(given, "runs", of_running, "runs made already are compared, and none is chosen.")
    apart(given, "dry_run", ("as_json", "out"), "a dry run prints processes and runs none.")


def check_simulate(given: Given) -> None:
    """What `advisor simulate` can do.

    Raises:
        InvalidInput: An option would be ignored.
    """
    needs(given, "kernels", {"trace": "--trace FILE, where kernels are written"})
    for source in ("plan", "trace_in"):
        apart(given, source, ("jobs", "job_file"), "jobs come from one of these.")
    apart(given, "plan", ("trace_in",), "jobs come from one of these.")
    apart(given, "plan", ("sharing",), "the plan says how its jobs share.")


def check_estimate(given: Given) -> None:
    """What `advisor estimate-memory` can estimate.

    Raises:
        InvalidInput: An option would be ignored, or a workload is not described.
    """
    described = ("timm", "resolution", "classes", "batch", "precision")
    apart(given, "workload", described, "a workload of that name says all of it.")
    for part in described[1:]:
        needs(given, part, {"timm": "--timm NAME"})
