"""Checks in about a second how fast the host is now, for advice where nobody calibrated it.

Hosts differ by half, and so does one virtual host from minute to minute; steps that wait for their
host follow. Of 1,065 drawn runs, such a check beforehand told as much as the speed of each core
during the run; of scripts that commands start some seconds later, six tenths of it.
"""

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.measure.calibrate_command import CORES_AT_ONCE, host_checks
from advisor.measure.process.claimed_device import Device, host_cpu
from advisor.measure.process.cores import allowed_cores, leave_to_tenants
from advisor.measure.process.provenance import Origin
from advisor.measure.process.scratch_folders import scratch_folder
from advisor.measure.process.supervisor import INTERRUPTED, say, supervised
from advisor.measure.process.tenants import tenants_on, warm_up
from advisor.measure.process.worker import TenantSetup, installed_version
from advisor.workload.machine_calibration import Calibration, HostCheck

# Of checks in all: advice is waited for. Starting the processes takes some seconds more.
_LONGEST_S = 1.0


def host_now(gpu: str) -> Calibration:
    """The host as it is now: a calibration for `gpu` that has host checks and nothing else.

    Raises:
        AdvisorError: It cannot be checked.
        KeyboardInterrupt: It was interrupted; nothing that it started is left.
    """
    if (torch := installed_version("torch")) is None:
        raise AdvisorError("torch is not installed, and the check is half dispatch into it")
    with scratch_folder() as folder:
        file = folder / "checks.json"
        code = supervised("advisor.measure.host_now:run", [str(file)])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            raise AdvisorError("the line before says why")
        checks = tuple(HostCheck(*each) for each in json.loads(file.read_text()))
    cpu = Device("cpu", None, "cpu", host_cpu(), None)
    origin = Origin(cpu, "a check before advice", len(allowed_cores()))
    return Calibration(
        gpu=gpu, host=checks, contexts=None, switching=(), idle_power_w=None,
        provenance=origin.provenance({"torch": torch}, (None, None)), in_passing=True,
    )  # fmt: skip


def run(argv: Sequence[str]) -> int:
    """Write the checks of this host to the file `argv` names; the exit code.

    Runs under a supervisor.
    """
    (file,) = argv
    ours = allowed_cores()
    taken = ours[: max(CORES_AT_ONCE)]
    try:
        with scratch_folder() as folder:
            leave_to_tenants([taken], ours)
            warm_up(folder, "torch_server")
            with tenants_on([TenantSetup("cpu", (core,), {}) for core in taken], folder) as tenants:
                checks = host_checks(tenants, _LONGEST_S)
    except AdvisorError as error:
        say(f"the host cannot be checked: {error}")
        return error.exit_code
    Path(file).write_text(json.dumps([astuple(each) for each in checks]))
    return 0
