"""Which options go together: an option that another one makes useless is refused."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from advisor.cli.options import AUTO
from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.launch.plan_file import SavedPlan
    from advisor.sharing import Sharing

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
    """See that `one` is not given together with any of `others`.

    Raises:
        InvalidInput: It is; says `why` they do not go together.
    """
    if one not in given:
        return
    for other in others:
        if other in given:
            raise InvalidInput(f"{given[one]} and {given[other]} do not go together: {why}")


def needs(given: Given, one: str, others: Mapping[str, str]) -> None:
    """See that `one` is given only together with one of `others`, options by their parameters.

    Raises:
        InvalidInput: It is given alone.
    """
    if one in given and not set(others) & set(given):
        listed = " or ".join(others.values())
        raise InvalidInput(f"{given[one]} says nothing alone: it needs {listed}.")


def check_recommend(given: Given, copied: str | None, gpus: int) -> None:
    """What `advisor recommend` can answer at all.

    Args:
        given: As `given_in` has it.
        copied: A JOB:auto; None: there is none.
        gpus: One is as good as none said.

    Raises:
        InvalidInput: An option would be ignored.
    """
    given = {name: each for name, each in given.items() if name != "gpus" or gpus > 1}
    if copied is not None:
        given["auto"] = copied
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


def check_ranks(given: Given, top: int, commands: int | None) -> None:
    """See that the plan whose commands are asked for is among those that are.

    Raises:
        InvalidInput: It is not.
    """
    if commands is not None and "top" in given and commands > top:
        raise InvalidInput(
            f"--commands {commands} and --top {top} do not go together: of so few plans none has "
            f"that rank."
        )


def check_alone(copied: str, names: Sequence[str]) -> None:
    """See that the JOB:auto `copied` is the only one of `names`.

    Raises:
        InvalidInput: There are others.
    """
    if len(names) > 1:
        raise InvalidInput(f"{copied}: how many copies pay is asked of one JOB, without others")


def check_work(given: Given, what: str, power_cap: str | None, objective: str) -> None:
    """See that `what` is asked for as it is chosen: by throughput, under one power cap.

    Raises:
        InvalidInput: Plans are to choose caps, or another objective is named.
    """
    if power_cap == AUTO:
        raise InvalidInput(
            f"--power-cap {AUTO} and {what} do not go together: plans choose caps for jobs that "
            f"start together. Give watts."
        )
    if "objective" in given and objective != "throughput":
        raise InvalidInput(
            f"--objective {objective} and {what} do not go together: copies, and jobs that join "
            f"others, are chosen by the throughput. Leave --objective out."
        )


def check_searched_whole(given: Given, exact_jobs: int) -> None:
    """See that no time limit is set for a search that is run to its end.

    Raises:
        InvalidInput: One is.
    """
    if "time_limit" in given:
        raise InvalidInput(
            f"--time-limit is for more than {exact_jobs} jobs, or several --gpus: fewer jobs on "
            f"one GPU are searched to the end. Leave it out."
        )


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


def check_queue(given: Given, sharing: "Sharing", at_once: int | None, policy: str) -> None:
    """See that what is asked of a queue is not said otherwise by `sharing`.

    Args:
        given: As `given_in` has it.
        sharing: Of each GPU.
        at_once: Jobs on a GPU at once at most; None: as many as memory holds.
        policy: Who starts next.

    Raises:
        InvalidInput: It has places of its own for more jobs, or says who starts next.
    """
    from advisor.sharing.traversal import places_named

    places = places_named(sharing)
    if at_once is not None and places > at_once:
        raise InvalidInput(
            f"--sharing {sharing} and --at-once {at_once} do not go together: the first says that "
            f"{places} jobs run at once."
        )
    if "policy" in given and sharing.mode == "phases":
        raise InvalidInput(
            f"--sharing {sharing} and --policy {policy} do not go together: the first says who "
            f"starts next."
        )


def check_plans(given: Given, plans: "Sequence[str | SavedPlan]") -> None:
    """What `advisor explain` can compare.

    Raises:
        InvalidInput: An option would be ignored.
    """
    from advisor.launch.plan_file import SavedPlan

    files = [plan for plan in plans if isinstance(plan, SavedPlan)]
    if not files:
        return
    given = given | {"plan": "a plan file"}
    apart(given, "plan", ("jobs", "job_file"), "a plan file has jobs of its own.")
    if len(files) == len(plans) and all(each.power_cap_w for each in files):
        apart(given, "plan", ("power_cap",), "both plans have caps of their own.")


def check_estimate(given: Given) -> None:
    """What `advisor estimate-memory` can estimate.

    Raises:
        InvalidInput: An option would be ignored, or a workload is not described.
    """
    described = ("timm", "resolution", "classes", "batch", "precision")
    apart(given, "workload", described, "a workload of that name says all of it.")
    for part in described[1:]:
        needs(given, part, {"timm": "--timm NAME"})
