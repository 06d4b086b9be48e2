"""Kubernetes Jobs, the shares and MIG instances of the device plugin, and pods of a script."""

import re
import subprocess
from collections import Counter
from dataclasses import replace

import psutil
import pytest
import yaml

from advisor.errors import InvalidInput
from advisor.hardware.gpus import catalogue, gpu
from advisor.launch.commands import commands_text
from advisor.launch.exports import EXPORTS, WHOLE
from advisor.launch.kubernetes import job_name, product_labels
from advisor.workload.job import Job
from advisor.workload.spec import Script
from tests.handed import BERT, JOBS, RESNET, handed
from tests.launch.golden_exports import PLANS
from tests.launch.kubernetes_fields import check_mig_parted
from tests.launch.kubernetes_objects import (
    check_objects,
    container,
    numbers,
    objects,
    on_gpus,
    scripts,
    text_of,
    variables,
)
from tests.launch.script_node import put
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_device_plugin_gives_a_gpu_as_many_places_as_jobs_run_at_once(replicas):
    text = EXPORTS["kubernetes"](handed(f"naive/{replicas}", (*JOBS, RESNET, BERT)))
    (config,) = [each for each in objects(text, "ConfigMap")]
    assert set(config["data"]) == {"default", "h200-141gb"}
    assert yaml.safe_load(config["data"]["default"]) == {"version": "v1"}
    sharing = yaml.safe_load(config["data"]["h200-141gb"])["sharing"]["timeSlicing"]
    assert sharing["resources"] == [{"name": "nvidia.com/gpu", "replicas": replicas}]
    for job in objects(text, "Job"):
        assert container(job)["resources"]["limits"] == {"nvidia.com/gpu.shared": 1}
    assert "device-plugin.config=h200-141gb" in text


def test_one_after_another_is_a_whole_gpu_for_each_and_no_sharing():
    text = text_of("kubernetes", "serial")
    assert not objects(text, "ConfigMap")
    for job in objects(text, "Job"):
        assert container(job)["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_each_mig_instance_is_requested_by_its_jobs_and_made_by_the_operator():
    text = text_of("kubernetes", "equal-instances")
    (config,) = objects(text, "ConfigMap")
    made = yaml.safe_load(config["data"]["config.yaml"])["mig-configs"]
    assert made["advisor"][0]["mig-devices"] == {"1g.18gb": 2, "1g.35gb": 1}
    assert made["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    limits = [dict(container(job)["resources"]["limits"]) for job in objects(text, "Job")]
    requested = Counter(name for each in limits for name in each)
    assert requested == {"nvidia.com/mig-1g.18gb": 2, "nvidia.com/mig-1g.35gb": 1}
    assert "nvidia.com/mig.config=advisor" in text


def test_jobs_in_turns_on_an_instance_share_its_resource():
    text = EXPORTS["kubernetes"](handed("mig=4g.71gb[1]+3g.71gb[2,3]", JOBS))
    plugin, _ = objects(text, "ConfigMap")
    sharing = yaml.safe_load(plugin["data"]["h200-141gb"])["sharing"]
    assert sharing["timeSlicing"]["resources"] == [
        {"name": "nvidia.com/mig-3g.71gb", "replicas": 2}
    ]
    limits = [container(job)["resources"]["limits"] for job in objects(text, "Job")]
    shared = {"nvidia.com/mig-3g.71gb.shared": 1}
    assert limits == [{"nvidia.com/mig-4g.71gb": 1}, shared, shared]


@pytest.mark.parametrize("name", ["serial", "mps", "limits", "phases", "queue", "queue-in-phases"])
def test_a_pod_with_a_whole_gpu_runs_the_script_of_the_plan(name):
    text = text_of("kubernetes-script", name)
    (config,), (job,) = objects(text, "ConfigMap"), objects(text, "Job")
    assert config["data"]["plan.sh"] == commands_text(PLANS[name], "0")
    assert container(job)["command"] == ["bash", "/advisor/plan.sh"]
    assert container(job)["resources"]["limits"] == {"nvidia.com/gpu": 1}
    (volume,) = [each for each in container(job)["volumeMounts"] if "advisor" in each["name"]]
    assert volume["mountPath"] == "/advisor"


def test_each_mig_instance_has_a_pod_that_runs_its_jobs_under_their_own_daemon():
    text = text_of("kubernetes-script", "several-on-an-instance")
    limits = [container(job)["resources"]["limits"] for job in objects(text, "Job")]
    assert limits == [{"nvidia.com/mig-4g.71gb": 1}, {"nvidia.com/mig-3g.71gb": 1}]
    first, second = scripts(text)
    assert "use_mps" not in first
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60" in second
    assert all("GPU=$(nvidia-smi -L" in script for script in (first, second))


def test_a_pod_of_several_jobs_requests_what_those_at_once_use():
    measured = [Job(replace(job.profile, host_memory_mib=1000.0)) for job in (*JOBS, RESNET)]
    text = EXPORTS["kubernetes-script"](handed("mps/2[3,1,2,4]", measured))
    (job,) = objects(text, "Job")
    assert container(job)["resources"]["requests"] == {"cpu": "4", "memory": "2500Mi"}
    in_turn = EXPORTS["kubernetes-script"](handed("mps[1,3];mps[2,4]", measured))
    (job,) = objects(in_turn, "Job")
    assert container(job)["resources"]["requests"] == {"cpu": "4", "memory": "2500Mi"}


def with_script(job, **fields):
    script = Script(**{"command": ("python", "train.py"), "folder": "/code"} | fields)
    workload = replace(job.profile.workload, script=script)
    return Job(replace(job.profile, workload=workload))


def test_a_job_of_a_script_runs_its_command_in_its_folder_with_its_variables():
    own = with_script(
        RESNET,
        command=("python", "train.py", "--out", "$(date) $HOME"),
        environment={"LR": "a$b", "HF_TOKEN": "hidden"},
    )
    text = EXPORTS["kubernetes"](handed("naive", [own, BERT]))
    first, second = objects(text, "Job")
    assert container(first)["workingDir"] == "/code"
    # Kubernetes replaces $$ by $, and $(NAME) by a variable.
    assert container(first)["command"] == ["python", "train.py", "--out", "$$(date) $$HOME"]
    assert variables(first)["LR"] == "a$$b"
    assert "hidden" not in text
    (secret,) = [each for each in container(first)["env"] if each["name"] == "HF_TOKEN"]
    assert secret["valueFrom"]["secretKeyRef"] == {"name": "advisor-secrets", "key": "HF_TOKEN"}
    assert "kubectl create secret generic advisor-secrets --from-literal=HF_TOKEN=..." in text
    assert container(second)["command"] == [f"./{BERT.name}.sh"]


@pytest.mark.parametrize("word", ["1e-4", "1E5", "0o17", "-1e3", ".5", "y", "N", "1g.5gb", "07"])
def test_words_that_kubernetes_would_read_as_numbers_or_truth_values_are_quoted(word):
    own = with_script(RESNET, command=("train", word), environment={"VALUE": word})
    text = EXPORTS["kubernetes"](handed("naive", [own, BERT]))
    assert text.count(f"'{word}'\n") == 2
    assert container(objects(text, "Job")[0])["command"] == ["train", word]


def test_a_job_requests_its_cores_and_its_measured_host_memory_with_a_margin():
    measured = Job(replace(RESNET.profile, host_memory_mib=8000.0))
    text = EXPORTS["kubernetes"](handed("naive", [measured, BERT]))
    first, second = map(container, objects(text, "Job"))
    assert first["resources"]["requests"] == {"cpu": "1", "memory": "10000Mi"}
    assert first["resources"]["limits"]["memory"] == "10000Mi"
    assert second["resources"]["requests"] == {"cpu": "3"}  # with two loader workers
    assert "# The host memory of job 2 was not measured" in text


def test_loader_workers_have_shared_memory():
    first, second = objects(text_of("kubernetes", "naive"), "Job")
    assert "volumes" not in first["spec"]["template"]["spec"]
    assert container(second)["volumeMounts"] == [{"name": "dev-shm", "mountPath": "/dev/shm"}]


def test_a_label_of_a_node_is_the_name_of_its_gpu_without_blanks():
    assert product_labels(gpu("a100-80gb")) == ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"]
    for model in catalogue().values():
        for label in product_labels(model):
            assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label)


def test_a_long_name_of_a_job_is_cut_to_a_label():
    assert job_name("12-" + "X._+" * 40) == ("advisor-12-" + "x-" * 26).strip("-")
    assert len(job_name("1-" + "a" * 100)) == 63


def test_gpus_that_share_in_one_way_are_one_configuration_and_each_job_is_there_once():
    plans = on_gpus(("naive", JOBS[:2]), ("naive/2", JOBS))
    text = WHOLE["kubernetes"](plans)
    check_objects(text)
    assert sorted(numbers(text)) == [1, 2, 3, 4, 5]


def test_gpus_of_a_node_that_would_share_in_several_ways_are_refused():
    with pytest.raises(InvalidInput, match="2 at once by time-slicing, and 3 at once"):
        WHOLE["kubernetes"](on_gpus(("naive", JOBS[:2]), ("naive", JOBS)))


def test_a_node_has_no_gpus_under_mps_together_with_mig_instances():
    plans = on_gpus(("mps=50,50", JOBS[:2]), ("mig=3g.71gb,4g.71gb", JOBS[:2]))
    with pytest.raises(InvalidInput, match="on nodes with MIG instances"):
        WHOLE["kubernetes"](plans)


def test_instances_of_several_gpus_are_one_configuration():
    plans = on_gpus(
        ("mig=3g.71gb,4g.71gb", JOBS[:2]), ("serial", JOBS), ("mig=3g.71gb,4g.71gb", JOBS[:2])
    )
    for text in (WHOLE["mig-parted"](plans), WHOLE["kubernetes"](plans)):
        assert "devices:" in text
    document = yaml.safe_load(WHOLE["mig-parted"](plans))
    check_mig_parted(document)
    first, second = document["mig-configs"]["advisor"]
    assert (first["devices"], second["devices"]) == ([0, 2], [1])
    assert first["mig-devices"] == {"3g.71gb": 1, "4g.71gb": 1}
    assert not second["mig-enabled"]


def test_hosts_with_other_instances_have_other_configurations():
    cut, other = ("mig=3g.71gb,4g.71gb", JOBS[:2]), ("mig=7g.141gb", JOBS[:1])
    equal = yaml.safe_load(WHOLE["mig-parted"](on_gpus(cut, cut, host_gpus=1)))
    assert list(equal["mig-configs"]) == ["advisor"]
    text = WHOLE["kubernetes"](on_gpus(cut, other, host_gpus=1))
    check_objects(text)
    assert re.findall(r"mig.config=(\S+)", text) == ["advisor-host-1", "advisor-host-2"]


IN_OWN_PROCESSES = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


@pytest.mark.skipif(
    subprocess.run([*IN_OWN_PROCESSES, "true"], capture_output=True, check=False).returncode != 0,
    reason="this machine lets no user have process numbers of their own",
)
def test_the_script_is_the_first_process_of_a_pod_and_ends_its_jobs_when_asked(tmp_path):
    (config,) = objects(EXPORTS["kubernetes-script"](handed("naive")), "ConfigMap")
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
