"""Finds profiles of a GPU; estimates others from another GPU, else from other batch sizes.

Profiles of all GPUs are converted to one host, so that no GPU is slower because of a CPU.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from math import inf
from pathlib import Path

from advisor.errors import InvalidInput, UnknownName, with_article
from advisor.files.reading import beside_package, is_file, is_folder, user_folder
from advisor.hardware.gpus import Gpu, known_gpus
from advisor.hardware.partition import unlikeness
from advisor.prediction.host import host_path_s
from advisor.prediction.other_batch import at_batch
from advisor.prediction.other_gpu import on_gpu, on_host_of
from advisor.sharing import parse_sharing
from advisor.workload.catalogue import how_to_measure
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.profile_checks import check_key, check_power
from advisor.workload.spec import batch_name, is_launcher
from advisor.workload.store import (
    load_profile,
    parse_profile,
    profile_paths,
    profiled_gpus,
    read_profile,
    unknown_profile,
)

_OF_JOBS = (".toml", ".yaml", ".yml")
# Files that hold something else than a profile, which their content shows.
_NO_PROFILES = (".csv", ".tsv", ".jsonl")
_STARTED_BY = {".py": "python", ".sh": "bash"}

# Copies as people write them: x2, 2, 2x, NAMEx2, NAME*2, NAME=2, 2xNAME; NAME:2 in a file.
_COPIES_ALONE = re.compile(r"[x*]?\s*\d*\s*[x*]?")
_WITH_COPIES = (
    re.compile(r"(?P<job>.+?)\s*[x*=#( ]\s*(?P<copies>\d+)\)?"),
    re.compile(r"(?P<copies>\d+)\s*[x*: ]\s*(?P<job>.+)"),
    re.compile(r"(?P<job>.+?)[:@](?P<copies>\d*).*"),
)

# GPUs whose rates are no further apart than an H100's and an H200's are about as like a third.
_ALIKE = 0.5


def profile_finder(gpu: Gpu, folder: Path | None = None) -> FindsProfiles:
    """Return `find_profile` of a name, which reads a profile once."""
    return cache(lambda name: find_profile(name, gpu, folder))


def find_profile(name: str, gpu: Gpu, folder: Path | None = None) -> Profile:
    """Find the profile called `name` as measured on `gpu`, or estimate it.

    It is estimated from the most similar GPU on which it was measured, or else from two or more
    other batch sizes.

    Args:
        name: Name of a profile; or path of its file, of any GPU; or of a script, ``train.py``,
            whose profile has the script's name.
        gpu: The GPU on which the job is to run.
        folder: Folder of profiles; None: the shipped ones and the user's own.

    Raises:
        UnknownName: It was measured on no GPU, and at less than two batch sizes.
        InvalidInput: The file is malformed, or nothing can be estimated from it.
    """
    if name.endswith(_OF_JOBS):
        how = "" if name.endswith(".toml") else "Write it in TOML, as `advisor init jobs` does. "
        file = Path(name).with_suffix(".toml")
        raise InvalidInput(f"{name}: a job file is not a JOB. {how}Pass --jobs {file} alone.")
    if name.endswith(tuple(_STARTED_BY)):
        script = Path(name)
        try:
            return find_profile(script.stem, gpu, folder)
        except UnknownName:
            starts = f"{_STARTED_BY[script.suffix]} {script}"
            here = "" if is_file(script) else ", and there is no such file in this folder"
            raise InvalidInput(
                f"{script}: no profile{here}. Measure the script alone on "
                f"{with_article(gpu.key)}, as it is: `advisor profile -- {starts}`. If you have "
                "only its log and the numbers of nvidia-smi: `advisor profile --from-numbers "
                "--help`."
            ) from None
    if is_path := "/" in name or name.endswith((".json", *_NO_PROFILES)):
        profile = check_key(read_profile(Path(name)), name)
        if profile.gpu not in (gpu.key, "cpu"):
            return _estimated(profile, gpu)
    path = Path(name) if is_path else profile_paths(gpu.key, folder).get(name)
    if path is not None:
        profile = check_power(load_profile(name, gpu.key, folder), gpu)
        shipped = not is_path and path.parent == beside_package("profiles") / gpu.key
        return _estimated(profile, gpu, _host_of(name, folder)) if shipped else profile
    elsewhere = nearest_profile(name, gpu, folder)
    if elsewhere is None:
        wanted, others = batch_name(name), names_of_batches(name, gpu, folder)
        if wanted is None or len(others) < 2:
            raise _not_found(name, gpu, folder)
        # Estimated where sizes were measured, and then for `gpu`, so that GPUs keep their order.
        near = _gpu_of_batches(others, gpu, folder)
        others = names_of_batches(name, near, folder)
        profiles = [find_profile(each, near, folder) for each in others]
        return _estimated(at_batch(profiles, wanted.batch), gpu)
    return _estimated(elsewhere, gpu, _host_of(name, folder))


def _not_found(name: str, gpu: Gpu, folder: Path | None) -> InvalidInput:
    """Return the error that names the missing profile."""
    names, on_cpu = names_of_jobs(gpu, folder), profile_paths("cpu", folder)
    if not name or is_folder(Path(name)):
        what = f"{name}: a folder" if name else "an empty word"
        return InvalidInput(f"{what} is not a JOB. Name one: `advisor profiles` lists them.")
    if name in names:
        return InvalidInput(
            f"{name}: no profile measured, and an estimate for another GPU cannot be estimated "
            f"again. Measure it on {with_article(gpu.key)}: {how_to_measure([name])}."
        )
    if name in on_cpu or not names:
        load_profile(str(on_cpu.get(name, name)), gpu.key, folder)  # which raises an error
    if remedy := _remedy_of_slip(name, names):
        return UnknownName("profile", name, (), remedy)
    return unknown_profile(name, gpu.key, names)


def _remedy_of_slip(name: str, names: Container[str]) -> str | None:
    """The remedy for copies without a colon, and for a word that is not a JOB; else None."""
    if _COPIES_ALONE.fullmatch(name):
        return "Write a number of copies after a JOB and a colon: JOB:2."
    for match in filter(None, (pattern.fullmatch(name) for pattern in _WITH_COPIES)):
        if match["job"] in names:
            in_file = name.startswith((f"{match['job']}:", f"{match['job']}@"))
            alone = f"{match['job']}, with copies and epochs in their own fields"
            return f"Write {alone if in_file else match['job'] + ':' + match['copies']}."
    if is_launcher(name):
        return (
            f"Measure the script that {name} starts: `advisor profile -- {name} train.py`. Then "
            "train.py is a JOB."
        )
    with suppress(InvalidInput):
        return f"To share like this, write --sharing {parse_sharing(name)}."
    return None


@lru_cache(1024)
def _estimated(profile: Profile, gpu: Gpu, host: Profile | None = None) -> Profile:
    """Return the same object each time, because results about a profile are cached by object."""
    there = on_gpu(profile, gpu)
    return there if host is None else on_host_of(there, host)


def profile_of_file(content: bytes, file: str, gpu: Gpu) -> Profile:
    """Read the profile in the `content` of a `file`; estimate it for `gpu` if it is of another."""
    profile = check_key(parse_profile(content, file), file)
    return check_power(profile, gpu) if profile.gpu == gpu.key else on_gpu(profile, gpu)


def names_of_jobs(gpu: Gpu, folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of all profiles that `find_profile` finds for `gpu`."""
    others = (key for key in profiled_gpus(folder) if key in known_gpus())
    names = {name for key in (gpu.key, *others) for name in profile_paths(key, folder)}
    return tuple(sorted(names))


def names_of_batches(name: str, gpu: Gpu, folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of the profiles of one workload at all batch sizes, smallest first.

    They are those measured on `gpu` if there are two or more, else those measured anywhere. `name`
    may contain any batch size or none.
    """
    own = batch_name(name)
    work = name if own is None else own.work
    for names in (profile_paths(gpu.key, folder), names_of_jobs(gpu, folder)):
        sizes = [each for each in map(batch_name, names) if each is not None and each.work == work]
        if len(sizes) >= 2:
            break
    return tuple(each.at(each.batch) for each in sorted(sizes, key=lambda each: each.batch))


def nearest_profile(name: str, gpu: Gpu, folder: Path | None = None) -> Profile | None:
    """Return the profile called `name` from the GPU most similar to `gpu`, but not its own.

    Among about equally similar GPUs, the one with the fastest host path counts: a slower time is
    the host's and not the workload's.
    """
    profiles = {key: each for key, (_, each) in _measured(name, folder).items() if key != gpu.key}
    return _on_fastest_host(profiles[key] for key in most_alike(profiles, gpu))


def _gpu_of_batches(names: Iterable[str], gpu: Gpu, folder: Path | None) -> Gpu:
    """Return the GPU most similar to `gpu` that has two or more of `names`; `gpu` if none has."""
    measured = [_measured(name, folder) for name in names]
    counts = Counter(key for profiles in measured for key in profiles)
    keys = [key for key, number in counts.items() if number > 1]
    if not keys or gpu.key in keys:
        return gpu
    alike = most_alike(keys, gpu)
    best = _on_fastest_host(p for each in measured for key, (_, p) in each.items() if key in alike)
    return known_gpus()[best.gpu] if best else gpu


def _measured(name: str, folder: Path | None) -> dict[str, tuple[Path, Profile]]:
    """Return the file and the profile called `name` of each GPU on which it was measured."""
    keys = sorted(known_gpus().keys() & profiled_gpus(folder))
    paths = {key: profile_paths(key, folder).get(name) for key in keys}
    profiles = {key: (path, read_profile(path)) for key, path in paths.items() if path is not None}
    return {key: each for key, each in profiles.items() if each[1].estimated_from is None}


def _host_of(name: str, folder: Path | None) -> Profile | None:
    """Return the profile called `name` whose host all GPUs share: the user's own, or fastest."""
    measured = _measured(name, folder).values()
    own = [each for path, each in measured if path.is_relative_to(user_folder("profiles"))]
    host = _on_fastest_host(own or [each for _, each in measured])
    return None if host is None or host.host_s is None else host


def _on_fastest_host(profiles: Iterable[Profile]) -> Profile | None:
    """Return the profile of `profiles` with the fastest host path; None: there is none."""
    return min(profiles, key=lambda each: host_path_s(each) if each.host_s else inf, default=None)


def most_alike(keys: Iterable[str], gpu: Gpu) -> tuple[str, ...]:
    """Return the GPUs called `keys` that are most similar to `gpu`, nearest first."""
    gpus = known_gpus()
    apart = {key: unlikeness(gpus[key], gpu) for key in sorted(keys)}
    return tuple(
        key
        for key in sorted(apart, key=apart.__getitem__)
        if apart[key] <= min(apart.values()) + _ALIKE
    )
