"""Runs a command where a script of a folder would run; prints what came of it as JSON.

`python -m tests.measure.process.run_in_place FOLDER BASE OPTIONS COMMAND...`; of OPTIONS, a word,
`d` denies namespaces, as containers do, and `l` copies nothing.
"""

import ctypes
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

from advisor.measure import inside, own_files
from advisor.measure.launcher import tied_to_parent
from advisor.measure.own_files import place_for
from advisor.measure.process import session_members
from advisor.workload.spec import Script


def deny_namespaces():
    """Let unshare(2) fail for this process and its children, by a filter as containers have one."""
    number = {"x86_64": 272, "aarch64": 97}[platform.machine()]
    load, jump, give = 0x20, 0x15, 0x06  # of linux/bpf_common.h
    program = b"".join(
        struct.pack("HBBI", *each)
        for each in (
            (load, 0, 0, 0),
            (jump, 0, 1, number),
            (give, 0, 0, 0x50001),
            (give, 0, 0, 0x7FFF0000),
        )
    )
    code = ctypes.create_string_buffer(program)
    filters = struct.pack("HxxxxxxP", 4, ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert prctl(22, 2, filters, 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP, by a filter


def main():
    folder, base, options, *command = sys.argv[1:]
    if "d" in options:
        deny_namespaces()
    if "l" in options:
        own_files._COPIED_IN_ALL = own_files._DATA_BYTES = 0
        own_files._Copies._clone = lambda *_: False
    place = place_for(Script(command=tuple(command), folder=folder), Path(base))
    hook = Path(base, "hook")
    hook.mkdir()
    (hook / "advisor_inside").symlink_to(Path(inside.__file__).parent)
    variables = {"INSIDE": str(hook), "GUARD": "" if place.overlays else base}
    with subprocess.Popen(
        tied_to_parent(command, place.overlays),
        cwd=place.working,
        env=os.environ | variables,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        lines = []
        while (line := process.stdout.readline().strip()) not in ("held", ""):
            lines.append(line)
        if place.exposed:
            place.exposed.look(session_members(process.pid))
        process.stdin.close()
        lines += process.stdout.read().splitlines()
    written, others = place.exposed.changed() if place.exposed else ([], [])
    came = {
        "overlay": bool(place.overlays),
        "lines": lines,
        "code": process.returncode,
        "written": written,
        "others": others,
    }
    print(json.dumps(came))


if __name__ == "__main__":
    main()
