"""Plans for Kubernetes: a pod for each GPU or MIG instance, which runs the script of its plan."""

import re
import subprocess
from dataclasses import replace
from heapq import nlargest

import psutil
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.gpus import catalogue, gpu
from advisor.launch.kubernetes import job_name, product_labels
from advisor.launch.shell import commands_text
from advisor.workload.job import Job
from tests.handed import BERT, H200, JOBS, RESNET, handed, on_gpus, scripted, write
from tests.launch.golden_exports import PLANS, SEVERAL, written
from tests.launch.kubernetes_objects import (
    check_mig_parted,
    check_objects,
    container,
    numbers,
    objects,
    scripts,
)
from tests.launch.script_node import put
from tests.waiting import PATIENCE_S

WRITTEN = written(["kubernetes"])


def text_of(name):
    return WRITTEN[f"{name}.kubernetes.yaml"]


def resources(text):
    return [container(job)["resources"] for job in objects(text, "Job")]


def test_every_plan_is_valid_objects_that_start_each_job_once_or_is_refused():
    for name, plan in PLANS.items():
        plans = plan if isinstance(plan, tuple) else [plan]
        if name in ("compute-instances", "compute-beside-whole", "phases-of-mig"):
            with pytest.raises(InvalidInput, match=r"[Ee]xport the plan as commands"):
                write("kubernetes", plans)
            continue
        text = text_of(name)
        started = {start.number for plan in plans for start in plan.starts}
        assert sorted(numbers(text)) == sorted(started)
        assert "# No cluster has run this file yet." in text
        assert {container(job)["image"] for job in objects(text, "Job")} == {"IMAGE"}


SHARED_BY = ["serial", "naive", "mps", "mps=50,50", "naive/2", "mps/2", "mig=3g.71gb,4g.71gb"]


@given(st.lists(st.sampled_from(SHARED_BY), min_size=1, max_size=4), st.integers(1, 4))
def test_whatever_the_gpus_run_each_job_is_in_one_pod(sharings, host_gpus):
    plans = on_gpus(*((each, JOBS[:2]) for each in sharings), host_gpus=host_gpus)
    text = write("kubernetes", plans)
    check_objects(text)
    assert sorted(numbers(text)) == list(range(1, 2 * len(sharings) + 1))


def test_a_pod_with_a_whole_gpu_runs_the_script_of_the_plan():
    for name in ("serial", "limits", "queue-in-phases"):
        text = text_of(name)
        (config,), (job,) = objects(text, "ConfigMap"), objects(text, "Job")
        assert config["data"]["plan.sh"] == commands_text([PLANS[name]], "0")
        assert container(job)["command"] == ["bash", "/advisor/plan.sh"]
        assert container(job)["resources"]["limits"] == {"nvidia.com/gpu": 1}
        (volume,) = [each for each in container(job)["volumeMounts"] if "advisor" in each["name"]]
        assert volume["mountPath"] == "/advisor"
    assert "estimated" not in text_of("naive")
    plan = replace(handed("naive"), estimated_from="h100-sxm-80gb")
    line = "# Its memory is estimated from h100-sxm-80gb, not measured"
    assert line in write("kubernetes", plan)


def test_each_mig_instance_has_a_pod_that_runs_its_jobs_under_their_own_daemon():
    text = text_of("several-on-an-instance")
    limits = [each["limits"] for each in resources(text)]
    assert limits == [{"nvidia.com/mig-4g.71gb": 1}, {"nvidia.com/mig-3g.71gb": 1}]
    first, second = scripts(text)
    assert "use_mps" not in first
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60" in second
    assert all("GPU=$(nvidia-smi -L" in script for script in (first, second))


def test_the_operator_makes_the_instances_that_the_pods_ask_for():
    text = text_of("equal-instances")
    config = objects(text, "ConfigMap")[0]
    check_mig_parted(config["data"]["config.yaml"])
    made = yaml.safe_load(config["data"]["config.yaml"])["mig-configs"]
    assert made["advisor"][0]["mig-devices"] == {"1g.18gb": 2, "1g.35gb": 1}
    assert made["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    assert "nvidia.com/mig.config=advisor" in text
    names = sorted(name for each in resources(text) for name in each["limits"])
    assert names == [*["nvidia.com/mig-1g.18gb"] * 2, "nvidia.com/mig-1g.35gb"]


def test_gpus_and_hosts_with_other_instances_have_other_configurations():
    cut, other = ("mig=3g.71gb,4g.71gb", JOBS[:2]), ("mig=7g.141gb", JOBS[:1])
    plans = on_gpus(cut, ("serial", JOBS), cut)
    text = write("mig-parted", plans)
    check_mig_parted(text)
    first, second = yaml.safe_load(text)["mig-configs"]["advisor"]
    assert (first["devices"], second["devices"]) == ([0, 2], [1])
    assert first["mig-devices"] == {"3g.71gb": 1, "4g.71gb": 1}
    assert not second["mig-enabled"]
    equal = yaml.safe_load(write("mig-parted", on_gpus(cut, cut, host_gpus=1)))
    assert list(equal["mig-configs"]) == ["advisor"]
    text = write("kubernetes", on_gpus(cut, other, host_gpus=1))
    assert re.findall(r"mig.config=(\S+)", text) == ["advisor-host-1", "advisor-host-2"]


def test_a_pod_requests_the_cores_and_the_memory_of_the_jobs_at_once():
    measured = [Job(replace(job.profile, host_memory_mib=1000.0)) for job in (*JOBS, RESNET)]
    for sharing in ("mps/2[3,1,2,4]", "mps[1,3];mps[2,4]"):
        (own,) = resources(write("kubernetes", handed(sharing, measured)))
        assert own["requests"] == {"cpu": "4", "memory": "2500Mi"}  # 25 % more than measured
        assert own["limits"]["memory"] == "2500Mi"
    unmeasured = write("kubernetes", handed("naive", [measured[0], BERT]))
    assert resources(unmeasured)[0]["requests"] == {"cpu": "4"}
    assert "# The host memory of job 2 was not measured" in unmeasured
    (job,) = objects(unmeasured, "Job")
    assert job["spec"]["template"]["metadata"]["annotations"]["gpu-advisor/memory-mib"] == "8000"


def test_memory_to_reserve_fits_the_gpu_whatever_jobs_meet_and_is_the_upper_end_if_there_is_room():
    tight = handed("naive", held_mib=90_000, least_mib=60_000)
    assert min(start.memory_mib for start in tight.starts) > 60_000
    listed = [each if isinstance(each, tuple) else (each,) for each in PLANS.values()]
    for plan in (tight, *(plan for plans in listed for plan in plans)):
        for stage in plan.stages:
            for instance in {part.instance for part in stage.partitions}:
                parts = [part for part in stage.partitions if part.instance == instance]
                starts = [start.memory_mib for part in parts for start in part.starts]
                at_once = 1 if stage.one_by_one else parts[0].at_once or len(starts)
                assert sum(nlargest(at_once, starts)) <= H200.usable_mib
                assert min(starts) > 0
    assert [start.memory_mib for start in handed("naive", held_mib=5000.0).starts] == [5000, 5000]


def test_a_secret_comes_from_kubernetes_and_is_not_in_the_file():
    variables = {"LR": "a$b", "HF_TOKEN": "hidden"}
    own = scripted("train", "$(date) $HOME", folder="/code", environment=variables)
    text = write("kubernetes", handed("naive", [own, BERT]))
    assert "hidden" not in text
    (job,) = objects(text, "Job")
    (secret,) = [each for each in container(job)["env"] if each["name"] == "HF_TOKEN"]
    assert secret["valueFrom"]["secretKeyRef"] == {"name": "advisor-secrets", "key": "HF_TOKEN"}
    assert "kubectl create secret generic advisor-secrets --from-literal=HF_TOKEN=..." in text
    assert "env -C /code LR='a$b'" in scripts(text)[0]


def test_a_job_of_several_gpus_is_a_pod_with_all_of_them():
    text = write("kubernetes", SEVERAL)
    wide = next(each for each in resources(text) if each["limits"]["nvidia.com/gpu"] == 2)
    assert wide["requests"]["cpu"] == "2"  # one for each process
    assert [each["limits"]["nvidia.com/gpu"] for each in resources(text)].count(1) == 3
    (job,) = [job for job in objects(text, "Job") if "job-4" in job["metadata"]["name"]]
    assert "/dev/shm" in [each["mountPath"] for each in container(job)["volumeMounts"]]
    assert "# A job of several GPUs starts when a node has as many free GPUs" in text
    for job, paths in ((RESNET, ["/advisor"]), (BERT, ["/advisor", "/dev/shm"])):  # its workers
        (own,) = objects(write("kubernetes", handed("serial", [job])), "Job")
        assert [each["mountPath"] for each in container(own)["volumeMounts"]] == paths


def test_labels_and_names_are_as_kubernetes_allows():
    assert product_labels(gpu("a100-80gb")) == ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"]
    for model in catalogue().values():
        for label in product_labels(model):
            assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label)
    assert job_name("12-" + "X._+" * 40) == ("advisor-12-" + "x-" * 26).strip("-")
    assert len(job_name("1-" + "a" * 100)) == 63


IN_OWN_PROCESSES = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


@pytest.mark.skipif(
    subprocess.run([*IN_OWN_PROCESSES, "true"], capture_output=True, check=False).returncode != 0,
    reason="this machine lets no user have process numbers of their own",
)
def test_the_script_is_the_first_process_of_a_pod_and_ends_its_jobs_when_asked(tmp_path):
    (config,) = objects(text_of("naive"), "ConfigMap")
    (tmp_path / "plan.sh").write_text(config["data"]["plan.sh"])
    for job in JOBS[:2]:
        put(tmp_path / f"{job.name}.sh", "#!/bin/sh\necho started $ADVISOR_JOB\nsleep 600\n")
    pod = subprocess.Popen(
        [*IN_OWN_PROCESSES, "bash", "plan.sh"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path), "ADVISOR_GRACE_S": "5"},
    )
    assert sorted(pod.stdout.readline() for _ in JOBS[:2]) == ["started 1\n", "started 2\n"]
    (first,) = psutil.Process(pod.pid).children()
    first.terminate()
    assert pod.wait(PATIENCE_S) == 143
    assert pod.stdout.read() == ""
    pod.stdout.close()
