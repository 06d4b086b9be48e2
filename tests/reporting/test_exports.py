"""Plans as files for other tools: as the golden files have them, and read back by their readers."""

import csv
import json
import re
import subprocess

import pytest
import yaml

from advisor.collocation.plan_file import read_plans
from advisor.errors import InvalidInput, NothingFits
from advisor.planning.handover import NOT_RUN, check_memory
from advisor.reporting.exports import EXPORTS, SUFFIXES
from tests.handed import BERT, JOBS, RESNET, handed, predicted
from tests.reporting.golden_exports import GOLDEN, PLANS, written

WRITTEN = written()


def of(form):
    return [name for name in WRITTEN if name.endswith("." + SUFFIXES[form])]


def test_every_file_is_as_its_golden_one_and_none_is_missing():
    assert sorted(WRITTEN) == sorted(path.name for path in GOLDEN.iterdir())
    for name, text in WRITTEN.items():
        assert text == (GOLDEN / name).read_text(), name


def test_there_is_a_golden_file_of_every_format():
    assert EXPORTS.keys() == SUFFIXES.keys()
    assert all(map(of, EXPORTS))


@pytest.mark.parametrize("name", [*of("commands"), *of("mps"), *of("slurm")])
def test_a_shell_reads_every_script(name):
    subprocess.run(["bash", "-n", GOLDEN / name], check=True)


@pytest.mark.parametrize("name", [each for each in WRITTEN if not each.endswith(".csv")])
def test_a_file_that_cuts_up_a_gpu_says_that_no_mig_hardware_ran_it(name):
    text = WRITTEN[name]
    assert (NOT_RUN in text) == bool(re.search(r"-cgi|MIG_\d|mig-enabled: true|\"mig=", text))


@pytest.mark.parametrize("name", of("mig-parted"))
def test_mig_parted_finds_each_instance_of_each_group(name):
    document = yaml.safe_load(WRITTEN[name])
    assert document["version"] == "v1"
    stages = PLANS[name.partition(".")[0]].stages
    for (entry,), stage in zip(document["mig-configs"].values(), stages, strict=True):
        assert entry["devices"] == [0]
        assert entry["mig-enabled"] == stage.on_mig
        assert sum(entry.get("mig-devices", {}).values()) == len(stage.rooms) * stage.on_mig


@pytest.mark.parametrize("name", of("radt"))
def test_radt_finds_a_row_for_each_job_and_a_workload_for_what_runs_at_once(name):
    rows = list(csv.DictReader(WRITTEN[name].splitlines()))
    plan = PLANS[name.partition(".")[0]]
    assert sorted(row["File"] for row in rows) == sorted(f"{s.job.name}.py" for s in plan.starts)
    workloads = [int(row["Workload"]) for row in rows]
    assert workloads == sorted(workloads)
    assert all(row["Status"] == row["Run"] == "" for row in rows)


@pytest.mark.parametrize(
    ("form", "plan", "said"),
    [
        ("mps", handed("naive"), "no job of it shares by MPS"),
        ("mps", handed("mig=3g.71gb,4g.71gb"), "Export it as commands"),
        ("radt", handed("mps=50,50"), "radT has no MPS limits"),
        ("radt", handed("mps", held_mib=90_000), "radT has no memory caps"),
        ("radt", handed("naive", cap_w=300.0), "radT has no power cap"),
        ("radt", handed("mig=7g.141gb/ci=3c[1]+4c[2]"), "radT has no compute instances"),
        ("radt", handed("mig=7g.141gb[1,2]"), "radT has no several jobs"),
        ("slurm", handed("mig=7g.141gb[1];naive[2]"), "Slurm does not cut up a GPU between jobs"),
    ],
)
def test_what_a_format_cannot_say_is_refused(form, plan, said):
    with pytest.raises(InvalidInput, match=said):
        EXPORTS[form](plan)


def test_slurm_gives_out_no_more_of_mps_than_there_is():
    for limits in ("", "=30,40,20", "=90,90,90", "=100,1,1"):
        text = EXPORTS["slurm"](handed(f"mps{limits}", JOBS))
        shares = [int(share) for share in re.findall(r"--gres=mps:(\d+)", text)]
        assert len(shares) == 3
        assert min(shares) >= 1
        assert sum(shares) <= 100


def test_the_next_group_waits_in_slurm_for_every_job_of_the_one_before():
    lines = WRITTEN["phases.slurm.sh"].splitlines()
    assert "--dependency=afterany:$job_2:$job_1 " in lines[-1]
    assert sum("--dependency" in line for line in lines) == 1


@pytest.mark.parametrize("name", ["serial", "naive", "mps", "limits"])
def test_the_command_that_runs_mixes_reads_a_plan_of_the_whole_gpu(name):
    (plan,) = read_plans(GOLDEN / f"{name}.json", "h200-141gb")
    assert plan.sharing == str(PLANS[name].sharing)
    assert plan.workloads == (RESNET.profile.workload, BERT.profile.workload)


@pytest.mark.parametrize("name", ["mig", "phases", "power-cap"])
def test_the_command_that_runs_mixes_refuses_what_it_cannot_run(name):
    with pytest.raises(InvalidInput, match="on MIG, in phases or under a power cap"):
        read_plans(GOLDEN / f"{name}.json", "h200-141gb")


def test_a_plan_that_runs_out_of_memory_is_refused_but_not_where_caps_hold():
    risky = predicted("naive", JOBS[:2], risk=0.4)
    with pytest.raises(NothingFits, match="with a chance of 40%"):
        check_memory(handed("naive"), risky)
    capped = handed("mps", held_mib=90_000, least_mib=60_000)
    check_memory(capped, predicted("mps", JOBS[:2], risk=0.4))


def test_the_json_says_cores_limits_and_caps_of_each_job():
    (plan,) = json.loads(WRITTEN["capped-memory.json"])["plans"]
    assert [job["cores"] for job in plan["jobs"]] == [[0, 0], [1, 3]]
    assert [job["mps_limit_percent"] for job in plan["jobs"]] == [50, 50]
    caps = [job["memory_cap_mib"] for job in plan["jobs"]]
    assert 60_000 <= caps[0] == caps[1] < 90_000
