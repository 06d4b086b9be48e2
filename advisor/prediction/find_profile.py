"""Finds profiles of a GPU; estimates those that were not measured on it.

An estimate is made from the profile on another GPU, else from other batch sizes of the workload.
Profiles measured on the GPU, or written for it by its user, take precedence.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from advisor.errors import InvalidInput, UnknownName, with_article
from advisor.hardware.gpus import Gpu, check_key, check_power, known_gpus, unlikeness
from advisor.prediction.host import host_path_s
from advisor.workload.calibration import Calibration
from advisor.workload.catalogue import how_to_measure
from advisor.workload.profile import FindsProfiles, Profile, batch_name
from advisor.workload.reading import is_file, is_folder
from advisor.workload.store import (
    NO_CALIBRATION,
    load_calibration,
    load_profile,
    parse_profile,
    profile_paths,
    profiled_gpus,
    read_profile,
    unknown_profile,
)

# GPUs whose rates are no further apart than an H100's and an H200's are about as like a third.
_ALIKE = 0.5


def profile_finder(
    gpu: Gpu, folder: Path | None = None, calibration: Path | None = None
) -> FindsProfiles:
    """A function that finds profiles of `gpu` by name, or in files, each once.

    Args:
        gpu: The GPU on which the jobs are to run.
        folder: Folder of profiles; None: the shipped ones and the user's own.
        calibration: Calibration of `gpu`, as `load_calibration` takes it; its measured rates are
            used in estimates.
    """
    return cache(lambda name: found_profile(name, gpu, folder, calibration))


def found_profile(
    name: str, gpu: Gpu, folder: Path | None = None, calibration: Path | None = None
) -> Profile:
    """The profile called `name` as measured on `gpu`, else estimated.

    It is estimated from the most similar GPU on which it was measured; if there is none, from two
    or more other batch sizes.

    Args:
        name: Name of a profile; or path of its file, of any GPU; or of a script, ``train.py``,
            whose profile has the script's name.
        gpu: The GPU on which the job is to run.
        folder: As of `profile_finder`.
        calibration: As of `profile_finder`.

    Raises:
        UnknownName: It was measured on no GPU, and at less than two batch sizes.
        InvalidInput: The file is malformed, or nothing can be estimated from it.
    """
    if name.endswith(".toml"):
        raise InvalidInput(f"{name}: a file of jobs is no JOB. Say --jobs {name}, alone.")
    if name.endswith(".py"):
        return _of_script(Path(name), gpu, folder, calibration)
    if is_path := "/" in name or name.endswith(".json"):
        profile = check_key(read_profile(Path(name)), name)
        if profile.gpu not in (gpu.key, "cpu"):
            return _estimated(profile, gpu, _calibrations(gpu, profile, calibration))
    if is_path or name in profile_paths(gpu.key, folder):
        return check_power(load_profile(name, gpu.key, folder), gpu)
    elsewhere = measured_on(name, gpu, folder)
    if elsewhere is None:
        said, others = batch_name(name), names_of_batches(name, gpu, folder)
        if said is None or len(others) < 2:
            return _own(name, gpu, folder)  # which says what is missing
        found = [found_profile(each, gpu, folder, calibration) for each in others]
        from advisor.prediction.other_batch import at_batch

        return at_batch(found, said.batch)
    return _estimated(elsewhere, gpu, _calibrations(gpu, elsewhere, calibration))


def _own(name: str, gpu: Gpu, folder: Path | None) -> Profile:
    """The profile measured on `gpu`; else the error that says what is missing."""
    known, on_cpu = names_of_jobs(gpu, folder), profile_paths("cpu", folder)
    if not name or is_folder(Path(name)):
        what = f"{name}: a folder" if name else "an empty word"
        raise InvalidInput(f"{what} is no JOB. Name one: `advisor profiles` lists them.")
    if name in on_cpu and name not in known:
        return load_profile(str(on_cpu[name]), gpu.key)  # which says why it is of no use
    if name in known and name not in profile_paths(gpu.key, folder):
        raise InvalidInput(
            f"{name}: nobody measured it, and from an estimate for another GPU nothing is "
            f"estimated. Measure it on {with_article(gpu.key)}: {how_to_measure([name])}."
        )
    if known and name not in profile_paths(gpu.key, folder):
        raise unknown_profile(name, gpu.key, known)
    return load_profile(name, gpu.key, folder)


def _of_script(script: Path, gpu: Gpu, folder: Path | None, calibration: Path | None) -> Profile:
    try:
        return found_profile(script.stem, gpu, folder, calibration)
    except UnknownName:
        raise _not_measured(script, with_article(gpu.key)) from None


def _not_measured(script: Path, where: str) -> InvalidInput:
    here = "" if is_file(script) else ", and there is no such file here"
    return InvalidInput(
        f"{script}: it was not measured yet{here}. Measure it alone on {where}, as it is: `advisor "
        f"profile -- python {script}`. Where only its log and nvidia-smi's figures are at hand: "
        f"`advisor profile --from-numbers --help`."
    )


@lru_cache(1024)
def _estimated(profile: Profile, gpu: Gpu, calibrations: tuple[Calibration, ...]) -> Profile:
    """The same object each time, since what is computed of a profile is cached by object."""
    from advisor.prediction.other_gpu import on_gpu

    return on_gpu(profile, gpu, calibrations)


def handed_in(content: bytes, file: str, gpu: Gpu) -> Profile:
    """The profile in the `content` of a `file`, estimated for `gpu` if it is of another GPU.

    Raises:
        InvalidInput: The file holds no profile, or none that can be estimated for `gpu`.
    """
    found = check_key(parse_profile(content, file), file)
    if found.gpu == gpu.key:
        return check_power(found, gpu)
    from advisor.prediction.other_gpu import on_gpu

    return on_gpu(found, gpu)


def names_of_jobs(gpu: Gpu, folder: Path | None = None) -> tuple[str, ...]:
    """Names of all profiles that `found_profile` finds for `gpu`."""
    there = (key for key in profiled_gpus(folder) if key in known_gpus())
    names = {name for key in (gpu.key, *there) for name in profile_paths(key, folder)}
    return tuple(sorted(names))


def names_of_batches(name: str, gpu: Gpu, folder: Path | None = None) -> tuple[str, ...]:
    """Names of the profiles of one workload at all batch sizes, smallest first.

    Those measured on `gpu` if there are two or more, else those measured anywhere.

    Args:
        name: Name of a profile at any batch size, measured or not; or without a size.
        gpu: The GPU on which the job is to run.
        folder: As of `profile_finder`.
    """
    asked = batch_name(name)
    work = name if asked is None else asked.work
    for names in (profile_paths(gpu.key, folder), names_of_jobs(gpu, folder)):
        said = [each for each in map(batch_name, names) if each is not None and each.work == work]
        if len(said) >= 2:
            break
    return tuple(each.at(each.batch) for each in sorted(said, key=lambda each: each.batch))


def measured_on(name: str, gpu: Gpu, folder: Path | None = None) -> Profile | None:
    """The profile called `name` from the GPU most similar to `gpu`, which is another one.

    Of about equally similar GPUs, the one whose host was fastest: any slower time is the host's and
    not the workload's.

    Raises:
        InvalidInput: A file of that name is malformed.
    """
    others = (known_gpus().keys() & profiled_gpus(folder)) - {gpu.key}
    paths = {key: profile_paths(key, folder).get(name) for key in others}
    found = {key: read_profile(path) for key, path in paths.items() if path is not None}
    alike = most_alike((key for key in found if found[key].estimated_from is None), gpu)
    return min((found[key] for key in alike), key=_host_s, default=None)


def most_alike(keys: Iterable[str], gpu: Gpu) -> tuple[str, ...]:
    """The GPUs called `keys` that are most similar to `gpu`, nearest first."""
    known = known_gpus()
    apart = {key: unlikeness(known[key], gpu) for key in sorted(keys)}
    return tuple(key for key in sorted(apart, key=apart.__getitem__)
                 if apart[key] <= min(apart.values()) + _ALIKE)  # fmt: skip


def _host_s(profile: Profile) -> float:
    """The job's own path, since the moments of a host's check may be others than its steps'."""
    return float("inf") if profile.host_s is None else host_path_s(profile)


def _calibrations(gpu: Gpu, profile: Profile, given: Path | None) -> tuple[Calibration, ...]:
    """Calibrations of `gpu` and of the GPU of `profile`, which may have measured their rates."""
    there = None if given == NO_CALIBRATION else load_calibration(profile.gpu)
    return tuple(each[1] for each in (load_calibration(gpu.key, given), there) if each is not None)
