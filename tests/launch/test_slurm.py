"""Scripts for Slurm: what they ask for, and the names of GPUs and MIG instances."""

import re
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
import yaml

from advisor.errors import InvalidInput
from advisor.hardware.gpus import catalogue, gpu
from advisor.launch.launch_plan import launch_plan
from advisor.launch.slurm import gres_names, other_type, slurm_type
from advisor.workload.job import Job
from tests.handed import BERT, H200, JOBS, RESNET, handed, predicted, write
from tests.launch.golden_exports import PLANS, written

WRITTEN = written(["slurm"])
A100 = gpu("a100-80gb")


@pytest.mark.parametrize(
    ("sharing", "same"),
    [
        ("mig=3g.40gb@0/ci=1c[1]+1c[2]+1c[3]+3g.40gb@4/ci=1c[4]", True),
        ("mig=3g.40gb@0/ci=2c[1]+1c[2]+3g.40gb@4/ci=2c[3]+1c[4]", False),
        ("mig=3g.40gb@0/ci=2c[1]+1c[2]+3g.40gb@4[3]", True),
        ("mig=4g.40gb@0[1]+3g.40gb@4[2]", True),
    ],
)
def test_mig_parted_is_given_only_what_it_divides_as_planned(sharing, same):
    jobs = [RESNET] * sharing.count("[")
    plan = launch_plan(jobs, A100, predicted(sharing, jobs))
    if same:
        (entry,) = yaml.safe_load(write("mig-parted", plan))["mig-configs"]["advisor"]
        assert sum(entry["mig-devices"].values()) == len(plan.partitions)
    else:
        with pytest.raises(InvalidInput, match="differently"):
            write("mig-parted", plan)


def test_types_are_those_that_the_nvml_plugin_makes_of_slices_and_memory():
    names = {profile.name: slurm_type(H200, profile.name) for profile in H200.mig}
    assert names == {
        "1g.18gb": "1g.16gb",
        "1g.18gb+me": "1g.16gb",
        "1g.35gb": "1g.32gb",
        "2g.35gb": "2g.32gb",
        "3g.71gb": "3g.70gb",
        "4g.71gb": "4g.70gb",
        "7g.141gb": "7g.140gb",
    }
    assert slurm_type(A100, "3g.40gb") == "3g.39gb"
    assert (other_type(H200, "2g.35gb"), other_type(H200, "3g.71gb")) == ("2g.33gb", None)


def test_a_type_is_within_half_a_gib_of_the_memory_or_not_known():
    for model in catalogue().values():
        for profile in model.mig:
            name = slurm_type(model, profile.name)
            assert (name is None) == profile.memory_estimated
            if name is not None:
                slices, memory_gib = re.fullmatch(r"(\d)g\.(\d+)gb", name).groups()
                assert int(slices) == profile.compute_slices
                newest_mib = profile.newest_mib or profile.memory_mib
                assert abs(int(memory_gib) - newest_mib / 1024) <= 0.5


def test_every_instance_that_a_job_asks_for_is_on_the_node_which_keeps_its_other_gpus():
    for name, text in WRITTEN.items():
        plan = PLANS[name.partition(".")[0]]
        (node,) = re.findall(r"NodeName=NODE Gres=(\S+)", text)
        offered = dict(each.rsplit(":", 1) for each in node.split(","))
        asked = Counter(re.findall(r"--gres=(\S+):\d ", text))
        assert asked.keys() <= offered.keys()
        if not isinstance(plan, tuple) and plan.on_mig:
            assert asked == {each: int(count) for each, count in offered.items()}
        assert not re.search(r"Gres=gpu:1\b", text)
        assert "Keep what else that line lists" in text
        assert text.count("$(sbatch ") == text.count(" --output=%x-%j.log ") == 1


def test_an_unknown_type_is_asked_for_before_anything_is_submitted():
    b200 = gpu("b200-180gb")
    mix = predicted("mig=3g.90gb,4g.90gb", JOBS[:2])
    text = write("slurm", launch_plan(JOBS[:2], b200, mix))
    assert "--gres=gpu:$TYPE_3g_90gb:1 " in text
    done = subprocess.run(["bash"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert "TYPE_3g_90gb: set it to the type of 3g.90gb that slurmd -G lists" in done.stderr


@pytest.mark.parametrize(
    ("model", "sharing"),
    [
        (H200, "mig=7g.141gb/ci=3c[1]+4c[2]"),
        (H200, "mig=3g.71gb/ci=2c[1]+1c[2]+3g.71gb[3]"),
        (gpu("a30-24gb"), "mig=2g.12gb/ci=1c[1]+1c[2]+2g.12gb+me[3]"),
    ],
)
def test_no_instance_is_asked_for_that_slurm_cannot_tell_from_another(model, sharing):
    jobs = JOBS[: sharing.count("[")]
    with pytest.raises(InvalidInput, match="for different compute instances"):
        write("slurm", launch_plan(jobs, model, predicted(sharing, jobs)))


def test_gpus_are_named_by_the_site_or_by_their_models():
    models = ["a100-40gb", "h100-sxm-80gb"]
    assert gres_names(models[:1], None) == {}
    assert gres_names(models, None) == {models[0]: "gpu:a100", models[1]: "gpu:h100"}
    assert gres_names(models[:1], "gpu:tesla") == {models[0]: "gpu:tesla"}
    assert gres_names(models, f"{models[1]}=gpu:hopper")[models[1]] == "gpu:hopper"
    for keys, words in ((models, "gpu:tesla"), (models[:1], "gpu:a:b:c"), (models[:1], "2")):
        with pytest.raises(InvalidInput, match="--gres-name"):
            gres_names(keys, words)


UNKNOWN = Job(replace(RESNET.profile, cores=()))


@pytest.mark.parametrize(
    ("sharing", "jobs", "cores"),
    [
        ("mps/2[3,1,2]", JOBS, ["4"]),
        ("mps", JOBS, ["5"]),
        ("mig=4g.71gb[1]+3g.71gb[2,3]/mps", [RESNET, BERT, BERT], ["1", "6"]),
        ("mps", [UNKNOWN, BERT], ["$((3 + CORES_1))"]),
    ],
)
def test_each_job_of_slurm_has_the_cores_of_the_most_jobs_at_once(sharing, jobs, cores):
    text = write("slurm", handed(sharing, jobs))
    assert re.findall(r"--gres=\S+:1 --cpus-per-task=(\d+|\$\(\(.*\)\)) ", text) == cores
    assert (': "${CORES_1:?set it to the host cores of job 1' in text) == (UNKNOWN in jobs)


def test_host_memory_is_that_of_the_jobs_at_once_if_all_profiles_have_it():
    held = [
        replace(job, profile=replace(job.profile, host_memory_mib=mib))
        for job, mib in zip(JOBS, (4096, 2048, 1024), strict=True)
    ]
    assert "--mem=8G" in write("slurm", handed("mps/2", held))  # 1.25 * 6 GiB
    text = write("slurm", handed("mps", [held[0], BERT]))
    assert "--mem=" not in text
    assert re.search(f"^# Set SBATCH_MEM_PER_NODE: .*: {BERT.name}.$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("sharing", "epochs", "most"),
    [
        ("serial", (1, 1, 2), 4),
        ("mps", (1, 2), 2),
        ("mps/2[3,1,2]", (1, 1, 2), 2),
        ("mps/2[1,2,3]", (1, 1, 2), 3),
    ],
)
def test_the_time_limit_is_twice_the_upper_end_of_the_predicted_time(sharing, epochs, most):
    text = write("slurm", handed(sharing, [replace(RESNET, epochs=each) for each in epochs]))
    (minutes,) = map(int, re.findall(r"--time=(\d+)", text))
    epoch_s = RESNET.work_steps  # a step takes a second
    assert 2 * most * epoch_s <= 60 * minutes < 2 * most * epoch_s + 900
    workload = replace(RESNET.profile.workload, examples_per_epoch=None)
    endless = Job(replace(RESNET.profile, workload=workload))
    assert "--time=" not in write("slurm", handed("mps", [endless, BERT])).split("set -euo")[1]
