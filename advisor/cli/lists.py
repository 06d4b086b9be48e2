"""Commands that list, write an example, or serve the page."""

import os
import sys
from pathlib import Path
from typing import Literal

from typer import Argument

from advisor.cli import options
from advisor.cli.options import AsJson, GpuKey, Profiles, Slices, flag, option
from advisor.cli.output import leave_out, show, show_answer, show_json, show_text
from advisor.errors import GpuUnavailable, InvalidInput, clean, require_extra
from advisor.files.reading import beside_package, is_file
from advisor.files.writing import write_whole
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import gpu as find_gpu
from advisor.hardware.gpus import known_gpus

_Kind = Literal["jobs", "campaign", "trace", "gpu"]
# Usual name, use, and content of each.
_FILES: dict[_Kind, tuple[str, str, str]] = {
    "jobs": ("jobs.toml", "advisor recommend --jobs {}", "jobs with lengths and limits"),
    "campaign": ("campaign.toml", "advisor campaign {} --dry-run", "mixes to be measured"),
    "trace": ("trace.csv", "advisor simulate --trace-in {}", "jobs that arrive over time"),
    "gpu": ("gpu.toml", "advisor recommend --gpu {}", "a GPU that `advisor gpus` lacks"),
}


def gpus(profiles: Profiles = None, as_json: AsJson = False) -> None:
    """List GPU models, and the GPU in this machine."""
    from advisor.hardware.live_gpu import live_gpus
    from advisor.hardware.machine import BrokenGpu, LiveGpu
    from advisor.report.lists import GpuList, gpus_table, live_lines
    from advisor.workload.store import profiled_gpus

    here: tuple[LiveGpu | BrokenGpu, ...] = ()
    problem = None
    try:
        here = live_gpus()
    except GpuUnavailable as error:
        problem = str(error)
    if as_json:
        models, profiled = tuple(known_gpus().values()), tuple(profiled_gpus(profiles))
        show_json(GpuList(models, profiled, here, problem))
        return
    show(gpus_table(known_gpus().values(), profiled_gpus(profiles)))
    show_text(
        f"\nNo GPU in this machine: {problem}" if problem else "\n".join(["", *live_lines(here)])
    )


def workloads(as_json: AsJson = False) -> None:
    """List the workloads that can be measured by name."""
    from advisor.report.lists import WorkloadList, workloads_table
    from advisor.workload.catalogue import zoo

    show_answer(WorkloadList(tuple(zoo())), as_json, workloads_table)


def profiles(
    gpu: GpuKey = DEFAULT_GPU,
    folder: Profiles = None,
    details: bool = flag("Add the fastest step and the date of each profile.", "--details"),
    as_json: AsJson = False,
) -> None:
    """List the profiles for a GPU: you name a JOB by its profile."""
    from advisor.report.lists import ProfileList, listed_profile, profiles_table
    from advisor.workload.store import sound_profiles

    measured, refused = sound_profiles(find_gpu(gpu).key, folder)
    leave_out(*refused)
    if as_json:
        listed = tuple(listed_profile(name, each) for name, each in measured.items())
        show_json(ProfileList(gpu, listed))
    elif measured:
        show(profiles_table(measured, details=details))
    else:
        show_text(
            f"No profile on {gpu} yet: run `advisor profile WORKLOAD...`. Until then, answers are "
            f"estimated from profiles on other GPUs."
        )


def layouts(
    gpu: GpuKey = DEFAULT_GPU,
    in_use: list[str] | None = option(
        "PROFILE[@START]",
        "Keep this existing instance, e.g. 3g.71gb or 3g.71gb@4; repeatable.",
        "--with",
    ),
    slices: Slices = None,
    driver: str | None = option(
        "BRANCH", "Use the MIG profiles of this driver branch, e.g. 470; default: this machine's."
    ),
    every: bool = flag("Draw each set of instances in all its places.", "--all"),
    as_json: AsJson = False,
) -> None:
    """List and draw the MIG layouts of a GPU."""
    from advisor.hardware.live_gpu import as_offered_here
    from advisor.hardware.mig import (
        driver_branch,
        instance_named,
        placement_sets,
        profiles_named,
        profiles_offered,
    )
    from advisor.report.lists import Layouts, layouts_report

    card, branch = find_gpu(gpu), None
    if driver is None:
        card, branch = as_offered_here(card)
    else:
        branch = driver_branch(driver)
    chosen = profiles_offered(card, branch)
    if slices is not None:
        chosen = profiles_named(card, slices.split(","), branch)
    names = [name for words in in_use or () for name in words.split(",")]
    used = tuple(instance_named(card, name) for name in names)
    listed = Layouts(card, chosen, placement_sets(card, chosen, used, branch))
    show_answer(listed, as_json, lambda it: layouts_report(it, used, every=every))


def init(
    kind: _Kind | None = Argument(
        None, metavar="KIND", help="jobs, campaign, trace or gpu; default: print the list of files."
    ),
    out: Path | None = option(
        "FILE", "Write to this file; default: its usual name, here.", parser=options.to_write
    ),
    schema: str | None = option(
        "NAME",
        "Print the JSON Schema of this file or answer instead; an unknown NAME prints all names.",
    ),
) -> None:
    """Write an example file with every field, to start from."""
    from importlib.resources import files

    if schema is not None:
        from advisor.schemas import schema_document

        show_json(schema_document(schema))
        return

    if kind is None:
        for each, (name, use, content) in _FILES.items():
            show_text(f"{each:8}  {content}, for `{use.format(name)}`")
        return
    name, example, _ = _FILES[kind]
    path = out or Path(name)
    if is_file(path):
        raise InvalidInput(f"{clean(str(path))} exists already. Choose another file with --out.")
    text = files("advisor.workload").joinpath("templates", name).read_text(encoding="utf-8")
    write_whole(path, text)
    show_text(f"{clean(str(path))}: change it, then  {example.format(clean(str(path)))}")


def app(
    port: int = option("PORT", "Serve on this port of localhost.", default=8501, min=1, max=65535),
) -> None:
    """Serve the page on localhost until Ctrl-C."""
    require_extra("`advisor app`", "page", "streamlit", "altair")
    served = "from advisor.page import serve; serve()"
    page = str(beside_package("app.py"))
    sys.stdout.flush()
    # What ends this process then ends the page.
    os.execv(sys.executable, [sys.executable, "-c", served, "run", page, f"--server.port={port}"])
