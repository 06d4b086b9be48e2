"""Each format is taken by what reads it: a shell, a scheduler, a parser of the tool itself."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from advisor.errors import InvalidInput, NothingFits
from advisor.launch import ExportFormat
from advisor.launch.exports import FORMATS, exported
from advisor.launch.launch_plan import NOT_RUN, check_memory
from advisor.launch.plan_file import read_plans
from advisor.measure.planned_runs import read_plans as read_mixes
from tests.handed import BERT, JOBS, RESNET, handed, predicted, scripted, write
from tests.launch import test_slurm_node
from tests.launch.golden_exports import GOLDEN, PLANS, SHOWN, written
from tests.launch.kubernetes_objects import check_mig_parted, check_objects
from tests.launch.script_node import ended, put, seen_by

WRITTEN = written()
LIMITS = handed("mps=43,57.5")
MIG_PARTED, RADT = shutil.which("nvidia-mig-parted"), shutil.which("radt")


def of(form):
    return [name for name in WRITTEN if name.endswith("." + FORMATS[form].file_end)]


def bash_runs_it():
    assert ended("commands", LIMITS).returncode == 0
    assert seen_by(BERT) == "on device=0 limit=57.5"


def bash_starts_its_daemons():
    words = [("start",), ("start",), ("run", "2", f"./{BERT.name}.sh"), ("stop",)]
    assert [ended("mps", LIMITS, *each).returncode for each in words] == [0, 1, 0, 0]
    assert seen_by(BERT) == "on device=0 limit=57.5"


def slurm_runs_it():
    assert test_slurm_node.pytestmark, "a real Slurm runs plans there"


def its_schemas_allow_it():
    for name in of("kubernetes"):
        check_objects(WRITTEN[name])


def mig_parted_parses_it():
    for name in of("mig-parted"):
        check_mig_parted(WRITTEN[name])
        Path("config.yaml").write_text(WRITTEN[name])
        for configuration in re.findall(r"^  (\S+):$", WRITTEN[name], re.MULTILINE):
            words = ["--valid-config", "-f", "config.yaml", "-c", configuration]
            if MIG_PARTED:
                subprocess.run([MIG_PARTED, "assert", *words], check=True)


def radt_runs_it():
    if not RADT:
        pytest.skip("radT is not on this machine")
    put(Path("a.py"), "import sys; open('words', 'a').write(f'{sys.argv[1:]}\\n')")
    words = ((), ("--lr", "0.1"))
    jobs = [scripted("python", "a.py", *each) for each in words]
    Path("plan.csv").write_text(write("radt", handed("serial", jobs)))
    variables = {
        "PATH": f"{Path(RADT).parent}:/usr/bin:/bin",
        "MLFLOW_TRACKING_URI": f"sqlite:///{Path.cwd()}/mlflow.db",
    }
    command = [RADT, "plan.csv"]
    subprocess.run(command, env=os.environ | variables, capture_output=True, check=True)
    assert Path("words").read_text() == "['-']\n['--lr', '0.1']\n"


def advisor_reads_it():
    for name in of("json"):
        Path("plan.json").write_text(WRITTEN[name])
        plan = PLANS[name.partition(".")[0]]
        plans = plan if isinstance(plan, tuple) else [plan]
        for read, own in zip(read_plans(Path("plan.json")), plans, strict=True):
            assert (read.gpu, str(read.sharing)) == (own.gpu.key, str(own.sharing))
            assert read.numbers == tuple(start.number for start in own.starts)
            assert (read.host, read.device, read.power_cap_w) == (0, own.device, own.power_cap_w)


ACCEPTED = {
    "commands": bash_runs_it,
    "mps": bash_starts_its_daemons,
    "slurm": slurm_runs_it,
    "kubernetes": its_schemas_allow_it,
    "mig-parted": mig_parted_parses_it,
    "radt": radt_runs_it,
    "json": advisor_reads_it,
}


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("form", FORMATS)
def test_what_reads_a_format_takes_it(form):
    ACCEPTED[form]()


def test_every_format_has_a_reader_that_takes_it_and_a_plan():
    assert set(ACCEPTED) == set(FORMATS) == set(get_args(ExportFormat))
    assert all(map(of, FORMATS))


def test_golden_files_are_as_written():
    assert sorted(SHOWN) == sorted(path.name for path in GOLDEN.iterdir())
    for name in SHOWN:
        assert WRITTEN[name] == (GOLDEN / name).read_text(), name


@pytest.mark.exhaustive
def test_shellcheck_has_no_objection_to_any_script(tmp_path):
    for name, text in WRITTEN.items():
        if name.endswith(".sh"):
            for number, part in enumerate([text, *submitted(text)]):
                (tmp_path / f"{number}-{name}").write_text(part)
    # Not used here: functions that traps call or that other plans need, and their variables.
    words = ["--exclude=SC2034,SC2317,SC2329", *sorted(tmp_path.iterdir())]
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def submitted(text):
    """The scripts that a script submits to Slurm."""
    heres = re.findall(r"(script)? ?<<'(END_*)'\n(.*?)\n\2\n", text, re.DOTALL)
    shared = "".join(lines for _, _, lines in heres if not lines.startswith("#!"))
    return [
        f"{lines}\n{shared if script else ''}\n"
        for script, _, lines in heres
        if lines.startswith("#!")
    ]


def test_every_script_is_bash_that_stops_at_its_first_failure():
    for name in (*of("commands"), *of("mps"), *of("slurm")):
        subprocess.run(["bash", "-n"], input=WRITTEN[name], text=True, check=True)
        assert re.search("^set -euo pipefail$", WRITTEN[name], re.MULTILINE)


def test_a_file_that_cuts_up_a_gpu_says_that_no_mig_hardware_ran_it_and_none_holds_jobs_to_cores():
    cuts = r"-cgi|MIG_\d|mig-enabled: true|\"mig=|nvidia.com/mig-"
    for name, text in WRITTEN.items():
        assert (NOT_RUN in text) == (bool(re.search(cuts, text)) and name[-3:] != "csv"), name
        assert "taskset" not in text
        assert '"cores"' not in text.partition('"profiles"')[0]
    for form in FORMATS:
        name = of(form)[0]
        plan = PLANS[name.partition(".")[0]]
        plans = plan if isinstance(plan, tuple) else [plan]
        assert (NOT_RUN in exported(plans, form)[1]) == any(each.on_mig for each in plans)


@pytest.mark.parametrize("form", ["mps", "mig-parted", "slurm", "kubernetes"])
def test_a_file_that_does_not_set_the_power_cap_of_its_plan_says_how_to(form):
    line = "s root[^#]*: nvidia-smi (-i 0 )?--power-limit=350$"
    assert re.search(f"^# .*{line}", write(form, handed("mps", cap_w=350.0)), re.MULTILINE)
    assert "--power-limit" not in write(form, handed("mps"))


@pytest.mark.parametrize(
    ("form", "plan", "lacking"),
    [
        ("mps", handed("naive"), "no job shares by MPS"),
        ("mps", handed("mig=3g.71gb,4g.71gb"), "Export it as commands"),
        ("mps", handed("mps/2", JOBS), "does not start jobs in order"),
        ("radt", handed("mps=50,50"), "radT cannot express MPS limits"),
        ("radt", handed("mps", held_mib=90_000), "radT cannot express memory caps"),
        ("radt", handed("naive/2", JOBS), "radT cannot express queue"),
        ("radt", handed("naive", cap_w=300.0), "radT cannot express power cap"),
        ("radt", handed("mig=7g.141gb/ci=3c[1]+4c[2]"), "radT cannot express compute instances"),
        ("radt", handed("mig=7g.141gb[1,2]"), "radT cannot express several jobs"),
        ("slurm", handed("mig=7g.141gb[1];naive[2]"), "Slurm does not change MIG instances"),
    ],
)
def test_what_a_format_cannot_express_is_refused(form, plan, lacking):
    with pytest.raises(InvalidInput, match=lacking):
        write(form, plan)


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "train"),
        (),
        ("src/train.py",),
        ("train.py", "two words"),
        ("train.py", "--name", "$HOME"),
        ("train.py", "--amp"),
    ],
)
def test_what_a_row_for_radt_cannot_express_is_a_placeholder_with_a_note(words):
    job = scripted("python", *words, folder="/srv")
    text, notes = exported([handed("serial", [job, BERT, job])], "radt")
    assert text.splitlines()[1].endswith(f"{job.name}.py,smi+top+dcgmi,-")
    assert notes[0].startswith(f"{job.name}.py, {BERT.name}.py: placeholders. Replace them")
    expressed = scripted("python3", "train.py", "--lr", "0.2", folder="/srv/a b")
    text, notes = exported([handed("serial", [expressed])], "radt")
    assert (text.split(",")[-3], notes) == ("/srv/a b/train.py", ())


@pytest.mark.parametrize("name", ["serial", "limits", "mig", "phases", "queue", "power-cap"])
def test_the_command_that_runs_mixes_reads_a_plan_of_the_whole_gpu_alone(name, tmp_path):
    (tmp_path / "plan.json").write_text(WRITTEN[f"{name}.json"])
    if name not in ("serial", "limits"):
        with pytest.raises(InvalidInput, match="on MIG, in phases, in a queue or under a power"):
            read_mixes(tmp_path / "plan.json", "h200-141gb")
        return
    (plan,) = read_mixes(tmp_path / "plan.json", "h200-141gb")
    assert plan.sharing == str(PLANS[name].sharing)
    assert plan.workloads == (RESNET.profile.workload, BERT.profile.workload)


def test_a_plan_that_runs_out_of_memory_is_refused_but_not_where_caps_hold():
    risky = predicted("naive", JOBS[:2], risk=0.4)
    for mix, chance in ((risky, "40 %"), (replace(risky, oom_probability=1.0), "100 %")):
        with pytest.raises(NothingFits, match=f"runs out of memory is {chance}"):
            check_memory(handed("naive"), mix)
    capped = handed("mps", held_mib=90_000, least_mib=60_000)
    check_memory(capped, predicted("mps", JOBS[:2], risk=0.4))
