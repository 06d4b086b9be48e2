"""Plans as files for other tools, read back by their readers; some of them as golden files."""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import yaml

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import catalogue, gpu
from advisor.launch import ExportFormat
from advisor.launch.commands import side_by_side
from advisor.launch.exports import EXPORTS, SUFFIXES, WHOLE
from advisor.launch.launch_plan import NOT_RUN, check_memory, launch_plan
from advisor.launch.slurm_mig import other_type, slurm_type
from advisor.measure.planned_runs import read_plans
from advisor.workload.job import Job
from tests.handed import BERT, H200, JOBS, RESNET, handed, predicted
from tests.launch.golden_exports import GOLDEN, PLANS, SHOWN, written, written_for_several

WRITTEN, SEVERAL = written(), written_for_several()


def of(form):
    return [name for name in WRITTEN if name.endswith("." + SUFFIXES[form])]


def test_golden_files_are_as_written():
    assert sorted(SHOWN) == sorted(path.name for path in GOLDEN.iterdir())
    texts = WRITTEN | SEVERAL
    for name in SHOWN:
        assert texts[name] == (GOLDEN / name).read_text(), name


def test_there_is_a_plan_of_every_format():
    assert set(EXPORTS) == set(SUFFIXES) == set(get_args(ExportFormat))
    assert all(map(of, EXPORTS))


@pytest.mark.parametrize("name", [*of("commands"), *of("mps"), *of("slurm")])
def test_a_shell_reads_every_script(name):
    subprocess.run(["bash", "-n"], input=WRITTEN[name], text=True, check=True)


def submitted(text):
    """The scripts that a script submits to Slurm."""
    heres = re.findall(r"(script)? ?<<'(END_*)'\n(.*?)\n\2\n", text, re.DOTALL)
    shared = "".join(lines for _, _, lines in heres if not lines.startswith("#!"))
    return [
        f"{lines}\n{shared if script else ''}\n"
        for script, _, lines in heres
        if lines.startswith("#!")
    ]


@pytest.mark.exhaustive
def test_shellcheck_has_no_objection_to_any_script(tmp_path):
    plans = side_by_side({0: PLANS["power-cap"], 1: PLANS["limits"]}, {0: [1, 2], 1: [3, 4]})
    texts = WRITTEN | SEVERAL
    scripts = {name: text for name, text in texts.items() if name.endswith(".sh")}
    scripts |= {form: WHOLE[form](plans) for form in ("commands", "slurm")}
    for name, text in scripts.items():
        for number, part in enumerate([text, *submitted(text)]):
            (tmp_path / f"{number}-{name}").write_text(part)
    # Not used here: functions that traps call or that other plans need, and their variables.
    words = ["--exclude=SC2034,SC2317,SC2329", *sorted(tmp_path.iterdir())]
    done = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", [each for each in WRITTEN if not each.endswith(".csv")])
def test_a_file_that_cuts_up_a_gpu_says_that_no_mig_hardware_ran_it(name):
    text = WRITTEN[name]
    cuts = r"-cgi|MIG_\d|mig-enabled: true|\"mig=|: mig\.nvidia\.com|vgpu-mode: mig"
    assert (NOT_RUN in text) == bool(re.search(cuts, text))


@pytest.mark.parametrize("name", of("mig-parted"))
def test_mig_parted_finds_each_instance_of_each_group(name):
    document = yaml.safe_load(WRITTEN[name])
    assert document["version"] == "v1"
    stages = PLANS[name.partition(".")[0]].stages
    for (entry,), stage in zip(document["mig-configs"].values(), stages, strict=True):
        assert entry["devices"] == [0]
        assert entry["mig-enabled"] == stage.on_mig
        assert sum(entry.get("mig-devices", {}).values()) == len(stage.partitions) * stage.on_mig


@pytest.mark.parametrize("name", of("mig-parted"))
def test_a_mig_parted_file_of_a_plan_under_mps_says_what_starts_mps(name):
    plan = PLANS[name.removesuffix("." + SUFFIXES["mig-parted"])]
    assert ("the script of `advisor export` does" in WRITTEN[name]) == plan.under_mps


@pytest.mark.parametrize("form", ["mps", "mig-parted", "slurm"])
def test_a_file_that_does_not_set_the_power_cap_of_its_plan_says_how_to(form):
    said = "s root[^#]*: nvidia-smi (-i 0 )?--power-limit=350$"
    assert re.search(f"^# .*{said}", EXPORTS[form](handed("mps", cap_w=350.0)), re.MULTILINE)
    assert "power" not in EXPORTS[form](handed("mps"))


@pytest.mark.parametrize(
    ("form", "plan", "said"),
    [
        ("mps", handed("naive"), "no job of it shares by MPS"),
        ("mps", handed("mig=3g.71gb,4g.71gb"), "Export it as commands"),
        ("radt", handed("mps=50,50"), "radT cannot express MPS limits"),
        ("radt", handed("mps", held_mib=90_000), "radT cannot express memory caps"),
        ("radt", handed("naive/2", JOBS), "radT cannot express queue"),
        ("mps", handed("mps/2", JOBS), "does not start jobs in order"),
        ("radt", handed("naive", cap_w=300.0), "radT cannot express power cap"),
        ("radt", handed("mig=7g.141gb/ci=3c[1]+4c[2]"), "radT cannot express compute instances"),
        ("radt", handed("mig=7g.141gb[1,2]"), "radT cannot express several jobs"),
        ("slurm", handed("mig=7g.141gb[1];naive[2]"), "Slurm does not change MIG instances"),
    ],
)
def test_what_a_format_cannot_say_is_refused(form, plan, said):
    with pytest.raises(InvalidInput, match=said):
        EXPORTS[form](plan)


A100 = gpu("a100-80gb")


@pytest.mark.parametrize(
    ("sharing", "same"),
    [
        ("mig=3g.40gb@0/ci=1c[1]+1c[2]+3g.40gb@4/ci=1c[3]+1c[4]", False),
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
        assert yaml.safe_load(EXPORTS["mig-parted"](plan))["version"] == "v1"
    else:
        with pytest.raises(InvalidInput):
            EXPORTS["mig-parted"](plan)


def test_slurm_types_are_those_that_its_plugin_makes_of_slices_and_memory():
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
    assert slurm_type(gpu("a100-80gb"), "3g.40gb") == "3g.39gb"
    assert (other_type(H200, "2g.35gb"), other_type(H200, "3g.71gb")) == ("2g.33gb", None)


def test_slurm_is_asked_for_no_part_of_an_instance_that_differs_in_media_engines_only():
    a30 = gpu("a30-24gb")
    mix = predicted("mig=2g.12gb/ci=1c[1]+1c[2]+2g.12gb+me[3]", JOBS)
    with pytest.raises(InvalidInput, match=r"one type, 2g\.12gb, for diff"):
        EXPORTS["slurm"](launch_plan(JOBS, a30, mix))


def test_a_slurm_type_is_within_half_a_gib_of_the_memory_or_not_known():
    for known in catalogue().values():
        for profile in known.mig:
            name = slurm_type(known, profile.name)
            assert (name is None) == profile.memory_estimated
            if name is not None:
                slices, memory_gib = re.fullmatch(r"(\d)g\.(\d+)gb", name).groups()
                assert int(slices) == profile.compute_slices
                newest_mib = profile.newest_mib or profile.memory_mib
                assert abs(int(memory_gib) - newest_mib / 1024) <= 0.5


@pytest.mark.parametrize("name", of("slurm"))
def test_every_instance_that_a_job_of_slurm_asks_for_is_on_the_node(name):
    (node,) = re.findall(r"NodeName=NODE Gres=(\S+)", WRITTEN[name])
    offered = dict(each.rsplit(":", 1) for each in node.split(","))
    asked = Counter(re.findall(r"--gres=(\S+):1 ", WRITTEN[name]))
    assert asked.keys() <= offered.keys()
    if PLANS[name.partition(".")[0]].on_mig:
        assert asked == {each: int(count) for each, count in offered.items()}


def test_a_type_that_nobody_knows_is_asked_for_before_anything_is_submitted():
    b200 = gpu("b200-180gb")
    text = EXPORTS["slurm"](launch_plan(JOBS[:2], b200, predicted("mig=3g.90gb,4g.90gb", JOBS[:2])))
    assert "--gres=gpu:$TYPE_3g_90gb:1 " in text
    done = subprocess.run(["bash"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert "TYPE_3g_90gb: set it to the type of 3g.90gb that slurmd -G lists" in done.stderr


@pytest.mark.parametrize(
    "sharing",
    [
        "mig=7g.141gb/ci=3c[1]+4c[2]",
        "mig=3g.71gb/ci=1c[1]+1c[2]+3g.71gb/ci=1c[3]",
        "mig=3g.71gb/ci=2c[1]+1c[2]+3g.71gb[3]",
    ],
)
def test_slurm_is_asked_for_no_compute_instance_that_it_cannot_tell_from_another(sharing):
    jobs = JOBS[: 2 + ("[3]" in sharing)]
    with pytest.raises(InvalidInput, match="for different compute instances"):
        EXPORTS["slurm"](handed(sharing, jobs))


UNKNOWN = Job(replace(RESNET.profile, cores=()))


def test_one_allocation_of_slurm_has_the_cores_of_all_its_jobs():
    text = EXPORTS["slurm"](handed("mig=4g.71gb[1]+3g.71gb[2,3]/mps", [RESNET, BERT, BERT]))
    assert re.findall(r"--cpus-per-task=(\d+) ", text) == ["1", "6"]


def test_slurm_ends_no_job_before_twice_the_upper_end_of_what_is_predicted():
    plan = handed("mig=3g.71gb,4g.71gb")
    minutes = map(int, re.findall(r"--time=(\d+)", EXPORTS["slurm"](plan)))
    for limit, start in zip(minutes, plan.starts, strict=True):
        assert start.most_s == start.job.work_steps  # a step takes a second
        assert 2 * start.most_s <= 60 * limit < 2 * start.most_s + 900


@pytest.mark.parametrize(("sharing", "jobs"), [("mps/2[3,1,2]", 2), ("mps", 3), ("mps/2", 2)])
def test_slurm_keeps_cores_for_the_most_jobs_at_once(sharing, jobs):
    cores = sorted(start.cores for start in handed("mps", JOBS).starts)[-jobs:]
    assert f"--cpus-per-task={sum(cores)} " in EXPORTS["slurm"](handed(sharing, JOBS))


def test_slurm_keeps_host_memory_for_the_jobs_at_once_if_all_profiles_have_it():
    held = [
        replace(job, profile=replace(job.profile, host_memory_mib=mib))
        for job, mib in zip(JOBS, (4096, 2048, 1024), strict=True)
    ]
    assert "--mem=8G" in EXPORTS["slurm"](handed("mps/2", held))  # 1.25 * 6 GiB
    text = EXPORTS["slurm"](handed("mps", [held[0], BERT]))
    assert "--mem=" not in text
    assert re.search(f"^# Set SBATCH_MEM_PER_NODE: .*: {BERT.name}.$", text, re.MULTILINE)


def test_slurm_is_told_the_time_of_all_groups_of_a_gpu():
    (minutes,) = map(int, re.findall(r"--time=(\d+)", EXPORTS["slurm"](handed("serial"))))
    most_s = sum(start.most_s for start in handed("serial").starts)
    assert 2 * most_s <= 60 * minutes < 2 * most_s + 900


def test_slurm_is_told_the_time_of_a_queue_in_its_order():
    def minutes(sharing):
        jobs = [replace(RESNET, epochs=epochs) for epochs in (1, 1, 2)]
        return int(re.search(r"--time=(\d+)", EXPORTS["slurm"](handed(sharing, jobs)))[1])

    most_s = handed("mps", [RESNET]).starts[0].most_s
    assert 2 * 2 * most_s <= 60 * minutes("mps/2[3,1,2]") < 2 * 2 * most_s + 900
    assert 2 * 3 * most_s <= 60 * minutes("mps/2[1,2,3]") < 2 * 3 * most_s + 900


def test_slurm_is_told_no_time_of_a_job_whose_length_nobody_knows():
    workload = replace(RESNET.profile.workload, examples_per_epoch=None)
    endless = Job(replace(RESNET.profile, workload=workload))
    assert "--time=" not in EXPORTS["slurm"](handed("mps", [endless, BERT])).split("set -euo")[1]


@pytest.mark.parametrize("name", of("slurm"))
def test_a_node_keeps_its_other_gpus_and_each_job_its_output(name):
    assert not re.search(r"Gres=gpu:1\b", WRITTEN[name])
    assert "Keep what else that line lists" in WRITTEN[name]
    assert WRITTEN[name].count("$(sbatch ") == WRITTEN[name].count(" --output=%x-%j.log ") == 1


def test_a_job_of_bare_numbers_has_the_cores_that_its_user_sets():
    text = EXPORTS["slurm"](handed("mps", [UNKNOWN, BERT]))
    assert "--cpus-per-task=$((3 + CORES_1)) " in text
    assert ': "${CORES_1:?set it to the host cores of job 1' in text


@pytest.mark.parametrize("name", WRITTEN)
def test_no_export_holds_a_job_to_cores(name):
    assert "taskset" not in WRITTEN[name]
    assert '"cores"' not in WRITTEN[name].partition('"profiles"')[0]


@pytest.mark.parametrize("name", ["serial", "naive", "mps", "limits"])
def test_the_command_that_runs_mixes_reads_a_plan_of_the_whole_gpu(name, tmp_path):
    (tmp_path / "plan.json").write_text(WRITTEN[f"{name}.json"])
    (plan,) = read_plans(tmp_path / "plan.json", "h200-141gb")
    assert plan.sharing == str(PLANS[name].sharing)
    assert plan.workloads == (RESNET.profile.workload, BERT.profile.workload)


@pytest.mark.parametrize("name", ["mig", "phases", "queue", "power-cap"])
def test_the_command_that_runs_mixes_refuses_what_it_cannot_run(name, tmp_path):
    (tmp_path / "plan.json").write_text(WRITTEN[f"{name}.json"])
    with pytest.raises(InvalidInput, match="on MIG, in phases, in a queue or under a power cap"):
        read_plans(tmp_path / "plan.json", "h200-141gb")


def test_a_plan_that_runs_out_of_memory_is_refused_but_not_where_caps_hold():
    risky = predicted("naive", JOBS[:2], risk=0.4)
    for mix, chance in ((risky, "40%"), (replace(risky, oom_probability=1.0), "100%")):
        with pytest.raises(NothingFits, match=f"some job, such as .* with a chance of {chance}"):
            check_memory(handed("naive"), mix)
    capped = handed("mps", held_mib=90_000, least_mib=60_000)
    check_memory(capped, predicted("mps", JOBS[:2], risk=0.4))


def test_the_json_has_limits_and_caps_of_each_job():
    (plan,) = json.loads(WRITTEN["capped-memory.json"])["plans"]
    assert [job["mps_limit_percent"] for job in plan["jobs"]] == [50, 50]
    caps = [job["memory_cap_mib"] for job in plan["jobs"]]
    assert 60_000 <= caps[0] == caps[1] < 90_000
