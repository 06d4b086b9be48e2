"""Prepares checkouts of the drawn programs: data, packages, and what runs once before the start.

    python -m benchmarks.programs.prepare CHECKOUTS [--wheels FOLDER]

CHECKOUTS holds a folder for each drawn program, by its name. Packages land in CHECKOUTS/site/NAME.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.programs.data import MAKERS
from benchmarks.programs.program_list import LIST, Program, draw_programs, read_programs


def site_of(program: Program, checkouts: Path) -> Path:
    """Return the folder of the packages that only this program needs."""
    return checkouts / "site" / program.name


def working_folder(program: Program, checkouts: Path) -> Path:
    """Return where its command runs; for a workload of the zoo, where we are."""
    return checkouts / program.name / program.folder if program.repository else Path.cwd()


def environment_of(program: Program, checkouts: Path) -> dict[str, str]:
    """Return the environment of its command: ours, with its packages and its own paths first."""
    site, folder = site_of(program, checkouts), working_folder(program, checkouts)
    paths = program.environment.get("PYTHONPATH", "").split(":")
    own = [str((folder / path).resolve()) for path in paths if path]
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    return {
        **os.environ,
        **program.environment,
        "PYTHONPATH": ":".join([*own, str(site), *inherited]),
        "PATH": f"{site / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MPLBACKEND": "Agg",
        "PYTHONUNBUFFERED": "1",
    }


def make_data(program: Program, checkouts: Path) -> None:
    """Call the makers of its data."""
    for call in program.data:
        words = dict(call)
        at = checkouts / program.name / words.pop("at")
        at.parent.mkdir(parents=True, exist_ok=True)
        MAKERS[words.pop("maker")](at, **words)


def install(program: Program, checkouts: Path, wheels: Path | None) -> None:
    """Install its packages, and itself if its README does, where only it sees them."""
    what = [*program.packages, *([str(checkouts / program.name)] if program.install else [])]
    if not what:
        return
    source = ["--no-index", "--find-links", str(wheels)] if wheels else []
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            *source,
            "--target",
            str(site_of(program, checkouts)),
            *what,
        ],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def prepare(program: Program, checkouts: Path, wheels: Path | None) -> None:
    """Make its data, install its packages and run its own preparation."""
    make_data(program, checkouts)
    install(program, checkouts, wheels)
    if program.prepare:
        subprocess.run(
            program.prepare,
            shell=True,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=working_folder(program, checkouts),
            env=environment_of(program, checkouts),
        )


def prepare_all(programs: Iterable[Program], checkouts: Path, wheels: Path | None) -> list[str]:
    """Prepare several at once; return a line for each that failed."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        tasks = {
            program.name: pool.submit(partial(prepare, program, checkouts, wheels))
            for program in programs
        }
    failures = {name: task.exception() for name, task in tasks.items()}
    return [f"{name}: {failure}" for name, failure in failures.items() if failure]


def main() -> int:
    """Prepare all drawn programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--wheels", type=Path, help="install from this folder, without an index")
    parser.add_argument("--list", type=Path, default=LIST)
    words = parser.parse_args()
    drawn = draw_programs(read_programs(words.list))
    failures = prepare_all(drawn, words.checkouts.resolve(), words.wheels)
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
