"""Finds and reads profiles, models, runs and calibrations: the shipped ones and the user's own.

A malformed file raises `InvalidInput` with the file, the field and what to do.
"""

import json
import os
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InvalidInput, UnknownName, with_article
from advisor.files.reading import (
    MODEL_FILE,
    Kind,
    beside_package,
    is_file,
    is_folder,
    profile_files,
    read_bytes,
    read_once,
    shown,
    user_folder,
)
from advisor.files.records import expecting, parse_record
from advisor.workload.catalogue import how_to_measure
from advisor.workload.minimal_profile import MinimalProfile, holds_minimal
from advisor.workload.profile import Profile
from advisor.workload.run import Run

if TYPE_CHECKING:
    from advisor.hardware.machine import Calibration


_OF_NUMBERS = "Correct the file: `advisor profile --from-numbers --help` lists its fields."


@read_once(1024)
def read_profile(path: Path) -> Profile:
    """Read the profile in `path`, whole or minimal: one object until the file changes."""
    return parse_profile(read_bytes(path), shown(path))


def parse_profile(content: bytes, where: str) -> Profile:
    """Read the profile in `content`, whole or minimal; messages call it `where`."""
    with expecting("a profile", content, where):
        if holds_minimal(content):
            return parse_record(MinimalProfile, content, where, _OF_NUMBERS).whole()
        return parse_record(Profile, content, where)


def read_calibration(path: Path) -> "Calibration":
    """Read the calibration in `path`."""
    from advisor.hardware.machine import Calibration

    content, remedy = read_bytes(path), "Measure it again: `advisor calibrate`."
    with expecting("a calibration", content, path):
        return parse_record(Calibration, content, str(path), remedy)


def shipped_folder(kind: Kind, folder: Path | None = None) -> Path:
    """Return the folder of data of `kind`: the one chosen by argument or environment, or shipped.

    The user's own measurements and models lie in the user's data folder, and are read in addition.
    """
    by_variable = os.environ.get(variable := f"ADVISOR_{kind.upper()}")
    chosen = folder or by_variable
    if not chosen:
        return beside_package(kind)
    if not is_folder(Path(chosen)):
        remedy = f"Unset {variable}" if by_variable == str(chosen) else "Check the path"
        raise InvalidInput(f"{chosen}: it is not a folder of {kind}. {remedy}.")
    return Path(chosen)


def _data_folders(gpu: str, folder: Path | None) -> tuple[Path, Path]:
    """The folders of profiles of `gpu`, runs in ``runs``: shipped, and the user's own."""
    return shipped_folder("profiles", folder) / gpu, user_folder("profiles") / gpu


def profile_paths(gpu: str, folder: Path | None = None) -> dict[str, Path]:
    """Return every profile measured on `gpu`, by name; the user's own replaces a shipped one."""
    nested, own = (
        {path.stem: path for path in profile_files(place)} for place in _data_folders(gpu, folder)
    )
    return nested | _side_by_side(folder).get(gpu, {}) | own


def _side_by_side(folder: Path | None) -> dict[str, dict[str, Path]]:
    """Profiles right in the folder, as `advisor profile --out` leaves them; by GPU and name.

    Plans and other files may lie there too.
    """
    paths: dict[str, dict[str, Path]] = {}
    for path in profile_files(shipped_folder("profiles", folder)):
        with suppress(InvalidInput):
            paths.setdefault(read_profile(path).gpu, {})[path.stem] = path
    return paths


def profiled_gpus(folder: Path | None = None) -> tuple[str, ...]:
    """Return every GPU on which a profile was measured."""
    folders = (shipped_folder("profiles", folder), user_folder("profiles"))
    nested = {of.name for folder in folders for of in folder.glob("*") if profile_files(of)}
    return tuple(sorted(nested | _side_by_side(folder).keys()))


def load_profile(name: str, gpu: str, folder: Path | None = None) -> Profile:
    """Read the profile called `name`, which is a path if it has a slash or ends in .json.

    Raises:
        UnknownName: No profile of that name was measured on `gpu`.
        InvalidInput: No profile was measured on `gpu`, or the file is malformed or of another GPU.
    """
    is_path = "/" in name or name.endswith(".json")
    if is_path:
        path = Path(name)
    elif not (paths := profile_paths(gpu, folder)):
        measured = "no GPU".join(profiled_gpus(folder)) or "no GPU yet"
        raise InvalidInput(
            f"no workload was measured on {gpu}; there are profiles of {measured}. Choose "
            f"another --gpu, or measure on {with_article(gpu)}: {how_to_measure([name])}."
        )
    elif name not in paths:
        raise unknown_profile(name, gpu, paths)
    else:
        path = paths[name]
    profile = read_profile(path)
    if profile.gpu == "cpu":
        raise InvalidInput(
            f"Profile {shown(path)} was measured on a CPU. Measure it on {with_article(gpu)}: "
            "`advisor profile` without --device cpu."
        )
    if profile.gpu != gpu:
        raise InvalidInput(
            f"{shown(path)}: measured on {profile.gpu}, not on {gpu}. Use --gpu {profile.gpu}, or "
            f"measure it on {with_article(gpu)}."
        )
    return profile


def unknown_profile(name: str, gpu: str, known: Iterable[str]) -> UnknownName:
    """Return the error for a `name` without profile: near names of `known`, or to measure it."""
    if is_file(file := Path(f"{name}.json")):
        return UnknownName("profile", name, (), f"For the file here, write {shown(file)}.")
    remedy = (
        f"`advisor profiles` lists all. To measure a new one on {with_article(gpu)}: "
        f"{how_to_measure([name])}."
    )
    return UnknownName("profile", name, known, remedy)


def sound_profiles(
    gpu: str, folder: Path | None = None, needed: Container[str] = ()
) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """Return all profiles of `gpu` by name, and the reason for each file that is not a profile.

    Raises:
        InvalidInput: The file of a `needed` profile, by name, is not a profile of `gpu`.
    """
    profiles, refused = {}, []
    for name, path in profile_paths(gpu, folder).items():
        try:
            profiles[name] = load_profile(str(path), gpu, folder)
        except InvalidInput as error:
            if name in needed:
                raise
            refused.append(str(error))
    return profiles, tuple(refused)


NO_CALIBRATION = Path("none")
"""Value for no calibration, not even the user's own."""


def load_calibration(gpu: str, chosen: Path | None = None) -> "tuple[Path, Calibration] | None":
    """Return the calibration of `gpu` and its file: the chosen one, else the user's own, if any."""
    path = chosen or user_folder("calibrations") / f"{gpu}.json"
    if chosen == NO_CALIBRATION or (chosen is None and not is_file(path)):
        return None
    calibration = read_calibration(path)
    if calibration.gpu != gpu:
        raise InvalidInput(
            f"{path}: measured on {calibration.gpu}, not on {gpu}. Use another --calibration, or "
            "none."
        )
    return path, calibration


def model_path(folder: Path | None = None) -> Path:
    """Return the fitted model: the user's refit if there is one, else the shipped one."""
    refit = user_folder("models") / MODEL_FILE
    if is_file(refit) and not (folder or os.environ.get("ADVISOR_MODELS")):
        return refit
    return shipped_folder("models", folder) / MODEL_FILE


def estimated_profiles(profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """Return the estimates among `profiles`, each once."""
    return tuple({each.name: each for each in profiles if each.is_estimate}.values())


def measured_profiles(
    gpu: str, folder: Path | None = None, needed: Container[str] = ()
) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """Return `sound_profiles` without estimates, which models are not fitted to.

    Raises:
        InvalidInput: One that is needed is an estimate, or its file is not a profile of `gpu`.
    """
    profiles, refused = sound_profiles(gpu, folder, needed)
    names = [each.name for each in estimated_profiles(profiles.values()) if each.name in needed]
    if names:
        raise InvalidInput(
            f"the profiles of {', '.join(names)} on {gpu} are estimates, but runs of them exist. "
            f"Measure them there: {how_to_measure(names)}."
        )
    return {name: each for name, each in profiles.items() if not each.is_estimate}, refused


def read_runs(path: Path) -> tuple[Run, ...]:
    """Return the runs in a JSON Lines file, in its order."""
    content, where = read_bytes(path), shown(path)
    with expecting("a list of runs", content, where):
        lines = enumerate(content.splitlines(), start=1)
        return tuple(parse_record(Run, line, f"{where}:{at}") for at, line in lines if line)


def last_solo_runs(gpu: str, host: str) -> dict[str, Run]:
    """Return the user's last run of each job alone on a whole `gpu` of the machine `host`.

    Lines that cannot hold one are not parsed, because a folder may hold thousands of runs.
    """
    here, last = json.dumps(host).encode(), dict[str, Run]()
    for file in sorted((user_folder("profiles") / gpu / "runs").glob("*.jsonl")):
        for line in read_bytes(file).splitlines():
            if here not in line or line.count(b'"outcome"') > 1:
                continue
            with suppress(InvalidInput):  # commands that learn from runs report it
                run = parse_record(Run, line, shown(file))
                alone = len(run.tenants) == 1 and run.sharing == "naive" and run.shows_pace
                before = last.get(run.names[0])
                newer = before is None or before.provenance.date < run.provenance.date
                if alone and newer and run.provenance.host == host:
                    last[run.names[0]] = run
    return last


def tenants_of(runs: Iterable[Run]) -> frozenset[str]:
    """Return the names of the workloads in `runs`."""
    return frozenset(name for run in runs for name in run.names)


def runs_by_owner(gpu: str, folder: Path | None = None) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Return the shipped runs on `gpu`, and the user's own from validations and campaigns.

    The user's runs get ids that differ from those of shipped runs of the same plan.
    """
    shipped, own = (
        tuple(run for file in sorted((f / "runs").glob("*.jsonl")) for run in read_runs(file))
        for f in _data_folders(gpu, folder)
    )
    if {run.id for run in shipped}.isdisjoint(run.id for run in own):
        return shipped, own
    return shipped, tuple(
        replace(run, id=f"own-{run.id}", repeats=run.repeats and f"own-{run.repeats}")
        for run in own
    )
