"""What a message tells the user to do next can be done."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import typer

from advisor.cli import _app
from advisor.cli.program_commands import AS_GIVEN
from advisor.errors import AdvisorError
from advisor.measure.calibrate_command import _parser as calibrate_parser
from advisor.measure.campaign.confirm_command import parsed as confirm_words
from advisor.measure.solo.from_numbers import _parser as numbers_parser
from advisor.measure.solo.profile_options import profile_parser
from advisor.workload.files import beside_package, shown
from advisor.workload.named_workloads import how_to_measure
from advisor.workload.store import load_profile

BERT = "bert-base-finetune-bs16"
GROUP = typer.main.get_command(_app)
COMMANDS = GROUP.commands
OPTIONS = {
    name
    for each in (GROUP, *COMMANDS.values())
    for p in each.params
    for name in (*p.opts, *p.secondary_opts, "--help")
}
ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "advisor").rglob("*.py"), ROOT / "app.py"]
COMMAND = re.compile(r"`advisor ([a-z-]+[^`]*)`")
# Options of other programs that are named beside ours, and files that are written for them.
OTHERS = {"--power-limit"}
FOR_OTHERS = {
    *(ROOT / "advisor" / "launch" / "exports").iterdir(),
    ROOT / "advisor" / "cli" / "removed.py",
}


@cache
def strings(path):
    """All texts of a module, docstrings aside; PLACEHOLDER where something is put in."""
    tree = ast.parse(path.read_text())
    passed_over, said = set(), []  # docstrings, and parts of texts that are put together
    for node in ast.walk(tree):  # what holds a text comes before the text
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if node.body and isinstance(node.body[0], ast.Expr):
                passed_over.add(id(node.body[0].value))
        elif isinstance(node, ast.JoinedStr):
            passed_over.update(map(id, node.values))
            parts = [p.value if isinstance(p, ast.Constant) else "PLACEHOLDER" for p in node.values]
            said.append("".join(parts))
        elif isinstance(getattr(node, "value", None), str) and id(node) not in passed_over:
            said.append(node.value)
    return said


HINTS = sorted({
    hint[1]
    for path in SOURCES if "`advisor " in path.read_text()
    for text in strings(path) for hint in COMMAND.finditer(text)
})  # fmt: skip


def test_hints_are_found():
    assert {"profiles", "gpus", "fit --gpu PLACEHOLDER", "campaign PLAN"} <= set(HINTS)


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_names_a_command_and_options_that_there_are(hint):
    name, *words = hint.replace("PLACEHOLDER", "mps").split()
    if "--help" in words:
        words.remove("--help")  # it ends the program where it is met
    if name == "profile" and "--from-numbers" in words:
        assert words == ["--from-numbers"]
        assert "--step-s" in numbers_parser().format_help()
    elif name == "profile" and "--mlflow" in words:
        assert words == ["--mlflow", "URI"]  # taken before the program that measures
    elif name == "profile":
        profile_parser().parse_args(words)
    elif name == "calibrate":
        calibrate_parser().parse_args(words)
    elif name == "campaign":
        assert words == ["PLAN"]
    elif name == "confirm":
        assert words == ["--apply"]
        assert confirm_words(words).apply
    else:
        command = COMMANDS[name]
        context = typer.Context(command, info_name=name)
        command.make_parser(context).parse_args(list(words))


def test_options_that_are_named_alone_are_options():
    of_argparse = {
        option
        for parser in (profile_parser(), calibrate_parser(), numbers_parser())
        for action in parser._actions
        for option in action.option_strings
    } | {"--devices", "--ray", "--resume"}
    words = re.compile(r"(?<![\w-])--[a-z][a-z-]+[a-z]")
    packages = (
        "cli",
        "plan",
        "prediction",
        "report",
        "sharing",
        "timeline",
        "validate",
        "workload",
    )
    for package in packages:
        paths = set((ROOT / "advisor" / package).rglob("*.py")) - FOR_OTHERS
        assert paths, package
        for path in paths:
            named = {word for text in strings(path) for word in words.findall(text)}
            assert named <= OPTIONS | of_argparse | OTHERS, path


def test_what_has_no_name_is_not_to_be_measured_by_it():
    assert how_to_measure([BERT, "gpt2-small-pretrain-bs8"]).startswith("`advisor profile bert")
    assert "my-job" not in how_to_measure([BERT, "my-job"])


def test_a_misspelt_job_is_not_said_to_be_measurable(advisor):
    said = advisor("recommend", "my-job").err
    assert "`advisor workloads` lists what can be measured" in said
    assert "`advisor profile my-job" not in said
    assert "a script of yours is measured as it is: `advisor profile -- python" in said


def test_the_footer_names_a_command_that_runs_beside_what_was_asked(advisor):
    words = ("recommend", f"{BERT}:2", "--top", 2)
    assert "--commands 1." in " ".join(advisor(*words).out.split())
    assert advisor(*words, "--commands", 1).code == 0


def test_a_gpu_that_is_cut_is_told_of_without_now(advisor):
    words = ("--running", BERT, "--running-sharing", "mig=4g.71gb@0", "--hurt", 3)
    assert advisor("recommend", BERT, *words).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["recommend", "none", "--gpu", "a100-80gb"],
        ["recommend", "none"],
        ["fit", "--gpu", "a30-24gb"],
        ["evaluate", "--gpu", "a30-24gb"],
        ["simulate", "none", "--gpu", "a30-24gb"],
    ],
)
def test_no_message_names_where_this_is_installed(advisor, monkeypatch, words):
    for name in ("ADVISOR_PROFILES", "ADVISOR_MODELS"):
        monkeypatch.delenv(name)
    said = advisor(*words)
    assert said.code == 2
    assert str(ROOT) not in said.err


def test_a_shipped_file_is_called_so():
    folder = beside_package("profiles")
    assert shown(folder / "h200-141gb" / "x.json") == "the shipped profiles, h200-141gb/x.json"
    assert shown(Path("mine.json")) == "mine.json"
    with pytest.raises(AdvisorError, match=r"^the shipped profiles, h200-141gb/"):
        load_profile(str(folder / "h200-141gb" / f"{BERT}.json"), "a100-40gb")


def test_help_has_a_short_name_in_every_command(advisor):
    assert advisor("-h").out == advisor("--help").out
    for name, command in COMMANDS.items():
        if command.context_settings == AS_GIVEN:
            continue  # the program that it starts says its own
        said = advisor(name, "-h")
        assert said.code == 0
        assert said.out.startswith(f"Usage: advisor {name} ")


def test_help_has_a_short_name_in_commands_that_start_others(capfd):
    for parser in (profile_parser, calibrate_parser):
        with pytest.raises(SystemExit) as end:
            parser().parse_args(["-h"])
        assert end.value.code == 0
    assert "usage: advisor" in capfd.readouterr().out
