"""Which GPU a command is about: the one named, else the one at hand, else that of the jobs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from advisor.cli.output import aside
from advisor.errors import AdvisorError, UnknownName
from advisor.hardware import DEFAULT_GPU


def asked_gpu(context: typer.Context, word: str) -> str:
    """Key of the GPU that ``--gpu WORD`` names; without the option, of the likeliest one.

    Raises:
        InvalidInput: Several GPUs have that name, or none has.
    """
    source = context.get_parameter_source("gpu")
    if source is not None and source.name != "DEFAULT":
        return _named(word)
    key, why = _likeliest(context.params)
    if why and not _says_its_gpu(context.params):
        aside(f"no --gpu given: this is about {key}, {why}")
    return key


def _named(word: str) -> str:
    from advisor.hardware.catalogue import gpu_meant
    from advisor.measure.process.this_machine import gpu_at_hand

    try:
        return gpu_meant(word).key
    except UnknownName:
        gpu_at_hand()  # which keeps what the driver says of one that is not listed
        return gpu_meant(word).key


def _likeliest(given: Mapping[str, Any]) -> tuple[str, str | None]:
    """The key of the likeliest GPU, and the reason; no reason for the default."""
    from advisor.measure.process.this_machine import gpu_at_hand

    here = gpu_at_hand()
    if here is not None:
        return here, "the GPU at hand"
    words = given.get("jobs") or given.get("names") or [given.get("job") or ""]
    profiled_on = _profiled_on([*filter(None, words)], given.get("profiles"))
    if len(profiled_on) == 1 and DEFAULT_GPU not in profiled_on:
        return profiled_on[0], "on which the jobs were profiled"
    return DEFAULT_GPU, None


def _profiled_on(words: Sequence[str], folder: Path | None) -> list[str]:
    """Keys of the GPUs with profiles of all jobs in `words`; none without jobs."""
    from advisor.hardware.catalogue import known_gpus
    from advisor.workload.store import profile_paths, profiled_gpus, read_profile

    names = [word.partition(":")[0] for word in words]
    files = [Path(name) for name in names if name.endswith(".json")]
    try:
        of_files = {read_profile(path).gpu for path in files}
        known = of_files or (set(profiled_gpus(folder)) if names else set())
        return [
            key for key in sorted(known & known_gpus().keys())
            if {*names} - {*map(str, files)} <= profile_paths(key, folder).keys()
        ]  # fmt: skip
    except AdvisorError:  # which the command itself will say more of
        return []


def _says_its_gpu(given: Mapping[str, Any]) -> bool:
    """Whether a plan file is given, which names its GPU."""
    return any(str(value).endswith(".json") for value in given.values())
