"""A machine with an H200 for commands that run in this process: what such a GPU does is made up.

Scripts run for real, on the CPU. Memory, kernels and paces together, which a CPU cannot show, are
made up, and so are the profiles of bundled workloads. Plans run by their real script, between
stand-ins for nvidia-smi and MPS.
"""

import os
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from advisor import Advisor
from advisor.measure import (
    calibrate,
    campaign,
    pace,
    process,
    recorded_jobs,
    shared_run,
)
from advisor.measure import profile as profile_command
from advisor.measure.device import Device
from advisor.measure.history import Series
from advisor.run import validate
from advisor.sharing import parse_sharing
from advisor.workload.profile import Memory
from advisor.workload.spec import Script, Workload
from tests import synthetic
from tests.lean import LEAN_PATH
from tests.measure.calibrate import recorded
from tests.refusals import supervise_here
from tests.report import mlflow_stand_in
from tests.run.machine import put_on_path

GPU = "h200-141gb"
# By command and options, since a script takes seconds: as it was measured the first time.
_MEASURED = {}


@contextmanager
def installed(monkeypatch, folder):
    """Put the machine in place of this one, with its files in `folder`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    tools = folder / "tools"
    tools.mkdir()
    machine, server = put_on_path(monkeypatch, tools)
    machine.mode = ["Disabled"] * 2
    monkeypatch.setattr(process, "temporary_base", lambda: tools)
    for module in (process, validate):
        monkeypatch.setattr(module, "supervise", supervise_here)
    _measure_on_cpu(monkeypatch)
    monkeypatch.setattr(shared_run, "measure", _shared_run)
    # Where there is such a GPU, profiles that were made up are stale.
    monkeypatch.setattr("advisor.measure.device.present_machine", lambda _: None)
    monkeypatch.setattr("advisor.hardware.live_gpu.first_gpu", lambda: None)
    h200 = Device("cuda", "GPU-0", GPU, "NVIDIA H200", "580")
    for module in (calibrate, validate):
        monkeypatch.setattr(module, "find_device", lambda _: h200)
    monkeypatch.setattr(calibrate, "bench_on", lambda *_: nullcontext())
    monkeypatch.setattr(calibrate, "_calibrate", lambda *_, **__: recorded.calibration())
    monkeypatch.setattr(recorded_jobs, "recorded_series", _recorded_series)
    monkeypatch.setattr(campaign, "local_runners", lambda *_: ())
    monkeypatch.setattr(campaign.Dispatcher, "work", lambda *_: None)
    monkeypatch.setattr("advisor.measure.runners.connect", lambda _: _Ray)
    monkeypatch.setattr(os, "execv", lambda _, words: sys.exit("run" not in words))  # the page
    mlflow_stand_in.install(monkeypatch)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _recorded_series(*_):
    """Return what Prometheus recorded in a day of two pods that each had a GPU."""
    values = {"gract": 0.6, "memory_utilization": 0.3, "memory_mib": 9000.0, "power_w": 400.0}
    times_s = range(0, 86_400, 30)
    return [
        Series(
            quantity,
            {"gpu": pod, "pod": f"train-{pod}", "namespace": "ml", "modelName": "NVIDIA H200"},
            [(at_s, value) for at_s in times_s],
        )
        for pod in "01"
        for quantity, value in values.items()
    ], 30.0


class _Ray:
    """A cluster with two of the GPUs."""

    @staticmethod
    def nodes():
        return [
            {"Alive": True, "Resources": {"accelerator_type:H200": 1.0}, "NodeManagerAddress": host}
            for host in ("10.0.0.1", "10.0.0.2")
        ]


def _measure_on_cpu(monkeypatch):
    """Look at scripts for a moment: how long a measurement takes is no law."""
    monkeypatch.setattr(profile_command, "_TIMING", profile_command.Timing(0.0, 0.05, 2, 0.05))
    for name in ("_STRETCH_S", "_LEAST_LOOK_S", "_LONGEST_SETTLING_S"):
        monkeypatch.setattr(pace, name, 0.1)
    measured_alone = profile_command.profile_alone

    def profile_alone(job, bench, idle_w, **terms):
        if job.script is None:
            return synthetic.profile(job.name)
        key = job.script.command, job.name
        if key not in _MEASURED:
            _MEASURED[key] = measured_alone(job, bench, idle_w, **terms | {"probe": False})
        return replace(
            on_h200(_MEASURED[key]), workload=replace(_MEASURED[key].workload, script=job.script)
        )

    cpu = Device("cpu", None, GPU, "NVIDIA H200", "580")
    for module in (profile_command, shared_run):
        monkeypatch.setattr(module, "find_device", lambda _: cpu)
    monkeypatch.setattr(profile_command, "profile_alone", profile_alone)


def on_h200(profile):
    """The profile of a script on a CPU with what an H200 would show of it, made up."""
    half_s = profile.step_s / 2
    return replace(
        profile,
        gpu=GPU,
        gpu_s=half_s,
        trace=synthetic.trace(100, half_s, half_s, 1000),
        memory=Memory(allocated_mib=900.0, reserved_mib=1000.0, device_mib=1500.0),
    )


def script_profile(folder):
    """The profile `train` of a script in `folder`, made up."""
    script = Script(command=("python", "train.py", "--lr", "0.1"), folder=str(folder))
    job = Workload(
        name="train",
        source="script",
        model="train",
        family="train",
        batch=64,
        script=script,
        examples_per_epoch=640,
    )
    return replace(synthetic.profile(), workload=job)


def _shared_run(plan, *_):
    """The run of a plan, in which each job is as slow as predicted."""
    h200 = Advisor(GPU)
    profiles = [h200.find_profile(each.name) for each in plan.workloads]
    jobs = h200.predict(profiles, plan.sharing).prediction.jobs
    run = synthetic.run(profiles, str(parse_sharing(plan.sharing)), 1.0, plan.id)
    tenants = (
        replace(
            tenant,
            windows=tuple(
                replace(each, seconds=each.steps * job.step_s.p50) for each in tenant.windows
            ),
        )
        for tenant, job in zip(run.tenants, jobs, strict=True)
    )
    return replace(run, tenants=tuple(tenants), purpose=plan.purpose)
