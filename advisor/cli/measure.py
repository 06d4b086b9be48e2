"""Commands that measure: the first four pass their words on; ``advisor doctor``."""

from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

from typer import Context, Exit, Option

from advisor.cli import options
from advisor.cli.options import (
    mlflow_log,
)
from advisor.cli.output import aside, show_json, show_text
from advisor.errors import GpuUnavailable, InvalidInput

if TYPE_CHECKING:
    pass


_WITHOUT_GPU = (
    "Without a GPU, describe the job by numbers of its log and nvidia-smi: `advisor profile "
    "--from-numbers --help`. Or name a similar job with a profile: `advisor profiles`."
)


_UNCALIBRATED = (
    "Advice needs no calibration: without one, it uses the constants of the fitted model."
)


def profile(context: Context) -> None:
    """Measure workloads, or your own script, alone."""
    from advisor.measure.process import supervise

    words = list(context.args)
    end = words.index("--") if "--" in words else len(words)  # the rest is a script's
    ours, uri = _without(words[:end], "--mlflow")
    as_json, ours = "--json" in ours, [word for word in ours if word != "--json"]
    log = mlflow_log(uri)
    began_s = time()
    entry = "profile_command:run_profile"
    if "--from-numbers" in ours:
        entry = "profile_command:run_from_numbers"
    elif any(word.partition("=")[0] == "--from-history" for word in ours):
        entry = "history_command:run_from_history"
    code = supervise(f"advisor.measure.{entry}", [*ours, *words[end:]])
    if log is not None or as_json:
        from advisor.report.lists import written_profiles_document
        from advisor.workload.store import read_profile

        paths = _written_since(began_s, _without(ours, "--out")[1])
        profiles = {str(path): read_profile(path) for path in paths}
        if log is not None:
            for each in profiles.values():
                log.profile(each)
        if as_json:
            show_json(written_profiles_document(profiles))
    if code == GpuUnavailable.exit_code:
        aside(_WITHOUT_GPU)
    raise Exit(code)


def _without(words: list[str], option: str) -> tuple[list[str], str | None]:
    """`words` without `option` and its value, and the value; None without the option."""
    for at, word in enumerate(words):
        if word == option:
            if at + 1 == len(words):
                raise InvalidInput(f"{option} needs a value after it.")
            return words[:at] + words[at + 2 :], words[at + 1]
        if word.startswith(f"{option}="):
            return words[:at] + words[at + 1 :], word.partition("=")[2]
    return words, None


def _written_since(began_s: float, out: str | None) -> list[Path]:
    from advisor.workload.reading import profile_files, user_folder

    folder = user_folder("profiles") if out is None else Path(out)
    places = [folder, *filter(Path.is_dir, folder.glob("*"))]
    files = (path for place in places for path in profile_files(place))
    # Time stamps of files may lag behind the clock.
    return sorted(path for path in files if path.stat().st_mtime > began_s - 0.1)


def campaign(context: Context) -> None:
    """Measure a plan of many mixes on one or more GPUs."""
    from advisor.measure.process import supervise

    raise Exit(supervise("advisor.measure.campaign:run_campaign", context.args))


def runs(context: Context) -> None:
    """Measure the plans in a file of `recommend --json`."""
    from advisor.measure.process import supervise

    raise Exit(supervise("advisor.measure.shared_run:run_list", context.args))


def calibrate(context: Context) -> None:
    """Measure what advice needs about this machine."""
    from advisor.measure.process import supervise

    code = supervise("advisor.measure.calibrate:run_calibrate", context.args)
    if code == GpuUnavailable.exit_code:
        aside(_UNCALIBRATED)
    raise Exit(code)


def doctor(
    undo: Annotated[
        bool, Option("--undo", help="First undo what killed scripts and measurements left.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check this machine for what spoils measuring or sharing.

    The answer has a remedy for each finding. blocks: something cannot be done here. spoils: it can,
    but the numbers are off. note: good to know. The exit code is 4 if something blocks.
    """
    from advisor.doctor import examine, findings_document, findings_text
    from advisor.run import undo_left

    for line in undo_left() if undo else ():
        aside(line)
    findings = examine()
    if as_json:
        show_json(findings_document(findings))
    else:
        show_text(findings_text(findings))
    blocked = any(each.severity == "blocks" for each in findings)
    raise Exit(GpuUnavailable.exit_code if blocked else 0)
