"""Every option in every mode of its command: it is heeded, or refused with both names."""

import json

import pytest
import typer

from advisor.cli import _app
from advisor.cli.program_commands import AS_GIVEN

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"
COMMANDS = typer.main.get_command(_app).commands

# What a command line says to choose a mode of a command, and the options that are refused there.
# Whatever else the command has is heeded; a new option needs a place in HEEDED or here.
ALWAYS = {"gpu", "profiles", "models", "calibration", "as_json"}
MODES = {
    "recommend": {
        "one GPU": ([BERT], {"time_limit", "running_sharing", "hurt", "device"}),
        "commands": ([BERT, "--commands", "1"], {"as_json", "details"}),
        "several GPUs": ([BERT, "--gpus", "2"], {"running", "now", "device", "protect"}),
        "copies": (
            [f"{BERT}:auto"],
            {"job_file", "running", "now", "running_sharing", "hurt", "device", "gpus",
             "time_limit", "commands", "top", "protect"},
        ),
        "beside others": (
            [BERT, "--running", RESNET],
            {"gpus", "time_limit", "device", "commands", "pessimistic", "objective", "protect",
             "details"},
        ),
        "beside what runs now": (
            [BERT, "--now"], {"gpus", "time_limit", "running_sharing", "details"},
        ),
    },
    "validate": {
        "runs made elsewhere": (
            ["--from", "runs.jsonl"],
            {"jobs", "job_file", "dry_run", "objective", "top", "device", "calibration"},
        ),
        "a dry run": ([BERT, "--dry-run"], {"as_json", "out"}),
    },
    "simulate": {
        "jobs": ([BERT], {"trace_in", "plan", "kernels"}),
        "a plan": (["--plan", "p.json"], {"jobs", "job_file", "trace_in", "sharing"}),
        "a trace": (["--trace-in", "t.csv"], {"jobs", "job_file", "plan"}),
        "phases": ([BERT, RESNET, "--sharing", "mps[1];naive[2]"], {"policy"}),
        "limits": ([BERT, RESNET, "--sharing", "mps=50,50"], {"at_once"}),
    },
    "export": {"one way of sharing": ([BERT, "--sharing", "mps"], {"objective", "rank"})},
    "evaluate": {"our own": (["--export", "e.jsonl"], {"predictions"})},
}  # fmt: skip
WORDS = {
    "job_file": ["--jobs", "j.toml"], "jobs": [RESNET], "gpus": ["--gpus", "2"],
    "time_limit": ["--time-limit", "3"], "running_sharing": ["--running-sharing", "mps"],
    "hurt": ["--hurt", "0.1"], "protect": ["--protect", BERT],
    "device": ["--device", "3"], "running": ["--running", RESNET],
    "now": ["--now"], "commands": ["--commands", "1"], "top": ["--top", "2"],
    "details": ["--details"],
    "as_json": ["--json"], "pessimistic": ["--pessimistic"], "objective": ["--objective", "energy"],
    "dry_run": ["--dry-run"], "out": ["--out", "o"], "trace_in": ["--trace-in", "t.csv"],
    "calibration": ["--calibration", "none"],
    "plan": ["--plan", "p.json"], "kernels": ["--kernels"], "sharing": ["--sharing", "naive"],
    "policy": ["--policy", "best-fit"], "at_once": ["--at-once", "1"], "timm": ["--timm", "vit"],
    "resolution": ["--resolution", "64"], "classes": ["--classes", "10"], "batch": ["--batch", "8"],
    "precision": ["--precision", "amp"], "predictions": ["--predictions", "p.jsonl"],
    "rank": ["--rank", "2"],
}  # fmt: skip
REFUSED = [
    (command, mode, option)
    for command, modes in MODES.items()
    for mode, (_, refused) in modes.items()
    for option in sorted(refused)
]


@pytest.mark.parametrize(("command", "mode", "option"), REFUSED)
def test_what_would_be_ignored_is_refused_by_name(advisor, command, mode, option):
    chosen, _ = MODES[command][mode]
    said = advisor(command, *chosen, *WORDS[option])
    assert (said.code, said.out) == (2, "")
    assert (WORDS[option][0] if option != "jobs" else "JOBS") in said.err
    choosing = [word for word in chosen if word.startswith("--") or word.endswith(":auto")]
    assert all(word in said.err for word in choosing[:1])


def test_a_new_option_is_thought_of_here():
    """What stands in no mode is heeded in all, or alone in its command."""
    heeded = ALWAYS | {
        "jobs", "job_file", "root", "memory_margin", "power_cap", "top", "objective", "sharing",
        "plan", "gpus", "policy", "at_once", "price", "trace", "runs", "out", "form", "first",
        "second", "workload", "folder", "in_use", "driver", "port", "export", "predictions",
        "context", "names", "job", "epochs", "steps", "count", "on", "host_cores",
        "mlflow", "kind", "apply", "rank", "patience", "deadline", "grace", "replace_instances",
        "resume", "everything", "named", "cores", "every",
        "start_up",
    }  # fmt: skip
    known = heeded | WORDS.keys()
    taken = [name for name, each in COMMANDS.items() if each.context_settings != AS_GIVEN]
    new = {(name, p.name) for name in taken for p in COMMANDS[name].params} - {
        (name, option) for name in taken for option in known
    }
    assert new == set()


def test_commands_are_for_the_gpu_that_is_named(advisor):
    words = ("recommend", f"{BERT}:2", "--no-root")
    lines = advisor(*words, "--commands", 1, "--device", 3).out.splitlines()
    assert "  export CUDA_DEVICE_ORDER=PCI_BUS_ID" in lines
    assert "  GPU=3" in lines
    assert any('CUDA_VISIBLE_DEVICES="$GPU" ' in line for line in lines)
    document = json.loads(advisor(*words, "--json", "--device", "GPU-0a1b").out)
    for plan in [*document["plans"], document["serial"]]:
        assert "GPU-0a1b" in " ".join(plan["commands"])


def test_commands_for_many_jobs_are_for_the_gpu_that_is_named(advisor):
    words = ("recommend", f"{BERT}:9", "--time-limit", 1, "--device", 3)
    assert "  GPU=3" in advisor(*words, "--commands", 1).out.splitlines()
    (plan,) = json.loads(advisor(*words, "--json").out)["plans"]
    assert all("CUDA_DEVICE_ORDER" in " ".join(each["commands"]) for each in plan["gpus"])


@pytest.mark.parametrize("device", ["0; rm -rf .", "MIG-1", "", "-1", "$(id)", "gpu"])
def test_no_other_word_gets_into_commands(advisor, device):
    said = advisor("recommend", BERT, "--commands", 1, f"--device={device}")
    assert (said.code, said.out) == (2, "")
    assert "--device" in said.err


def test_a_rank_beyond_top_has_no_commands(advisor):
    assert advisor("recommend", f"{BERT}:2", "--commands", 1, "--top", 1).code == 0
    said = advisor("recommend", f"{BERT}:2", "--commands", 3, "--top", 2)
    assert said.code == 2
    assert "--commands 3 and --top 2" in said.err


@pytest.mark.parametrize("margin", ["1.5", "-0.1", "nan", "inf", "1"])
@pytest.mark.parametrize(
    "words", [[BERT], [BERT, "--gpus", 2], [f"{BERT}:auto"], [BERT, "--running", RESNET]],
    ids=["one GPU", "several", "copies", "beside others"],
)  # fmt: skip
def test_a_memory_margin_beyond_reach_is_refused(advisor, words, margin):
    said = advisor("recommend", *words, f"--memory-margin={margin}")
    assert (said.code, said.out) == (2, "")
    assert "--memory-margin" in said.err


@pytest.mark.parametrize(
    "words", [[BERT], [BERT, RESNET, "--gpus", 2], [f"{BERT}:auto"]],
    ids=["one GPU", "several", "copies"],
)  # fmt: skip
def test_a_memory_margin_that_no_plan_leaves_has_no_plan(advisor, words):
    said = advisor("recommend", *words, "--memory-margin", 0.995)
    assert (said.code, said.out) == (3, "")
    assert "of memory free" in said.err


def test_a_plan_is_for_its_own_gpu(advisor, tmp_path):
    file = tmp_path / "plan.json"
    advisor("export", f"{BERT}:2", "--sharing", "mps", "--format", "json", "--out", file)
    assert advisor("simulate", "--plan", file, "--gpu", "H200").code == 0
    for words in (["simulate", "--plan", file], ["explain", file, "naive"]):
        said = advisor(*words, "--gpu", "a100-40gb")
        assert said.code == 2
        assert "--gpu a100-40gb" in said.err


def test_two_plans_with_caps_of_their_own_take_no_other(advisor, tmp_path):
    file = tmp_path / "plan.json"
    words = ("export", f"{BERT}:2", "--sharing", "mps", "--power-cap", 500)
    advisor(*words, "--format", "json", "--out", file)
    said = advisor("explain", file, file, "--power-cap", 600)
    assert said.code == 2
    assert "--power-cap" in said.err


def test_the_environment_says_nothing_against_the_words(advisor, monkeypatch, tmp_path):
    file = tmp_path / "plan.json"
    advisor("export", f"{BERT}:2", "--sharing", "mps", "--format", "json", "--out", file)
    monkeypatch.setenv("ADVISOR_GPU", "a100-40gb")
    assert advisor("simulate", "--plan", file).code == 0


def test_gpus_as_json_says_which_have_profiles(advisor, tmp_path):
    assert json.loads(advisor("gpus", "--json").out)["profiled"] == ["h200-141gb"]
    assert json.loads(advisor("gpus", "--profiles", tmp_path, "--json").out)["profiled"] == []
