"""The folder by which a program finds its hook, and what keeps a program from finding it."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from advisor.measure.inside import FOLDER, VARIABLE

# Programs that start Python; some find one that is not on PATH. Each has a wrapper in a folder that
# is first on PATH, in case that a script of the user's sets PYTHONPATH, or all variables.
_STARTERS = (
    "python",
    "python3",
    *(f"python3.{minor}" for minor in range(8, 20)),
    "ipython",
    "torchrun",
    "accelerate",
    "deepspeed",
    "uv",
    "conda",
    "mamba",
    "micromamba",
    "poetry",
    "pixi",
)
_WRAPPER = r"""#!/bin/sh
# Starts the next program of this name on PATH, with the hook of the folder above.
here=${0%/*} name=${0##*/}
case $PYTHONPATH: in
"${here%/*}:"*) ;;
*) export PYTHONPATH="${here%/*}${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
[ -n "$ADVISOR_HOOK" ] || read -r ADVISOR_HOOK < "${here%/*}/settings"
export ADVISOR_HOOK
set -f
IFS=:
for folder in ${PATH#*"$here:"}; do
  [ ! -x "${folder:-.}/$name" ] || [ -d "${folder:-.}/$name" ] || exec "${folder:-.}/$name" "$@"
done
echo "$name: not on PATH" >&2
exit 127
"""


def hook_variables(
    folder: Path, settings: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, str]:
    """Make the `folder` of a program's hook; return the variables by which it attaches to torch.

    `settings` are as for `advisor.measure.inside.VARIABLE`; `environment` is the program's.
    """
    wrappers = folder / "bin"
    wrappers.mkdir(parents=True)
    targets = {
        "sitecustomize.py": FOLDER / "sitecustomize.py",
        "advisor_inside": FOLDER,
        "advisor": FOLDER.parents[1],  # for `advisor.step()`, and for our own commands
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    (folder / "settings").write_text(json.dumps(settings) + "\n")
    path = environment.get("PATH", os.defpath)
    for name in _STARTERS:
        if shutil.which(name, path=path):
            (wrappers / name).write_text(_WRAPPER)
            (wrappers / name).chmod(0o755)
    paths = ":".join(filter(None, [str(folder), environment.get("PYTHONPATH")]))
    return {VARIABLE: json.dumps(settings), "PYTHONPATH": paths, "PATH": f"{wrappers}:{path}"}


# Among Python's own options, in words that 0 separates, one that makes it ignore PYTHONPATH, or
# sitecustomize.
_ISOLATED = re.compile(r"[^\0]+(?:\0-[WX]\0[^\0]*|\0-[^\0]*)*?\0(-[bBdhiOqRsuvVx]*[IES])")


def why_unseen(processes: Iterable[psutil.Process], folder: Path) -> str | None:
    """Return a sentence on one of `processes` that uses torch without the hook in `folder`."""
    for process in processes:
        with suppress(psutil.Error, OSError):
            words, own = process.cmdline(), process.environ().get("PYTHONPATH", "")
            lost = str(folder) not in own.split(":")
            isolated = _ISOLATED.match("\0".join(words))
            if (lost or isolated) and "libtorch" in Path(f"/proc/{process.pid}/maps").read_text():
                reason = (
                    f"{isolated[1]} keeps it from being measured. Leave that out"
                    if isolated
                    else f"its PYTHONPATH was replaced by {own!r}. Keep what it contains: "
                    f"PYTHONPATH=DIR:$PYTHONPATH"
                )
                return f"`{shlex.join(words)[:200]}` uses torch, but {reason}"
    return None
