"""Public programs: their list, its draws, their data, and the harness that times their prints."""

import hashlib
import json
import re
import sys
from collections import Counter
from dataclasses import replace

import psutil
import pytest

from advisor.files.writing import record_line
from benchmarks.programs import keep, measure
from benchmarks.programs.data import MAKERS, image_folder, mnist, words
from benchmarks.programs.prepare import prepare_all
from benchmarks.programs.printed import Running, run_together
from benchmarks.programs.program_list import (
    Program,
    draw_mixes,
    draw_programs,
    draw_workloads,
    read_programs,
    zoo_program,
)
from research.programs import (
    printed_step_s,
    printed_steps,
    program_scores,
    programs_table,
    results_in,
)
from tests import synthetic

LISTED = read_programs()
KINDS = {"vision", "language", "rl", "graphs", "gans", "speech or diffusion"}

# Prints a count that begins again with each epoch.
EPOCHS = """
import sys, time
while True:
    for step in range(40):
        sys.stderr.write(f"\\r{step}/40 [now]")
        sys.stderr.flush()
        time.sleep(0.005)
"""
# Starts a process outside its group, too.
LEAVES = (
    """
import subprocess
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("child", left.pid)
"""
    + EPOCHS
)
LINES = """
import time
while True:
    print("\\x1b[32mloss: 1\\x1b[0m")
    time.sleep(0.12)
"""
BROKEN = "raise SystemExit(3)"


def program(name, pace, **fields):
    return Program(
        name=name,
        kind="test",
        repository="a/b",
        commit="0",
        folder=".",
        pace=pace,
        command="python train.py",
        **fields,
    )


SMALL = {
    "epochs": (program("epochs", r"^(\d+)/40 \["), EPOCHS),
    "leaves": (program("leaves", r"^(\d+)/40 \["), LEAVES),
    "lines": (program("lines", r"^loss: ", steps=10), LINES),
    "broken": (program("broken", r"^never"), BROKEN),
}


@pytest.fixture
def checkouts(tmp_path):
    for name, (_, text) in SMALL.items():
        (tmp_path / "checkouts" / name).mkdir(parents=True)
        (tmp_path / "checkouts" / name / "train.py").write_text(text)
    return tmp_path / "checkouts"


def cores():
    return sorted(psutil.Process().cpu_affinity())


def test_the_list_has_thirty_programs_of_many_repositories_and_all_kinds():
    assert len(LISTED) == 30
    assert len({each.repository for each in LISTED.values()}) >= 15
    assert {each.kind for each in LISTED.values()} == KINDS
    assert all(re.fullmatch("[0-9a-f]{40}", each.commit) for each in LISTED.values())


@pytest.mark.parametrize("listed", LISTED.values(), ids=lambda each: each.name)
def test_a_listed_program_names_makers_and_exact_versions(listed):
    assert {call["maker"] for call in listed.data} <= MAKERS.keys()
    assert all("==" in package for package in listed.packages)
    assert re.compile(listed.pace).groups <= 1


def test_two_programs_of_each_kind_are_drawn():
    drawn = draw_programs(LISTED)
    assert Counter(each.kind for each in drawn) == dict.fromkeys(KINDS, 2)


def test_an_unusable_program_gives_its_place_to_the_next_of_its_kind_alone():
    before = draw_programs(LISTED)
    gone = before[5]
    after = draw_programs({**LISTED, gone.name: replace(gone, unusable="no such module")})
    (new,) = {each.name for each in after} - {each.name for each in before}
    assert {each.name for each in before} - {each.name for each in after} == {gone.name}
    assert LISTED[new].kind == gone.kind


def test_mixes_have_two_to_five_different_jobs_and_use_all_equally_often():
    names = [job.name for job in (*draw_programs(LISTED), *draw_workloads())]
    mixes = draw_mixes(names)
    assert Counter(map(len, mixes)) == {2: 5, 3: 5, 4: 5, 5: 5}
    assert all(len(set(mix)) == len(mix) for mix in mixes)
    often = Counter(name for mix in mixes for name in mix)
    assert set(often) == set(names)
    assert max(often.values()) - min(often.values()) <= 1


@pytest.mark.parametrize(
    ("name", "line", "steps"),
    [
        ("bert", "{'epoch': 0, 'iter': 120, 'avg_loss': 9.1}", 120),
        ("cleanrl-dqn", "SPS: 574", 10),
        ("drl-sac-discrete", "EnvName: CPV1 seed: 0 steps: 12k score: 9", 12_000),
        ("drl-sac-discrete", "EnvName: CPV1 seed: 0 steps: 8k score: 9", None),
        ("gin", "Epoch: 258, Loss: 0.37, Train: 0.8, Test: 0.4", 516),
        ("min-diffusion", "loss: 0.6412:   5%|5   | 24/469 [00:02<00:40, 11.0it/s]", 24),
        ("mingpt-chargpt", "iter_dt 31.11ms; iter 40: train loss 2.4", 40),
        ("open-clip", "Train Epoch: 0 [  1280/100000 (1%)] Data (t): 0.6 Batch (t): 1.1", 20),
        ("pointnet", "[0: 3/379.28] train loss: 2.9 accuracy: 0.06", 1),
        ("pointnet", "[0: 3/379.28] test loss: 2.9 accuracy: 0.06", None),
        ("wgan-gp", "[Epoch 0/200] [Batch 35/938] [D loss: 1.0] [G loss: 2.0]", 7),
    ],
)
def test_the_steps_of_a_printed_line_are_those_that_its_author_counts(name, line, steps):
    assert LISTED[name].printed_steps(line, 0) == (None if steps is None else pytest.approx(steps))


def test_a_workload_of_the_zoo_prints_its_pace(capsys, monkeypatch):
    pytest.importorskip("torch")
    import advisor.zoo.__main__ as zoo
    from advisor.zoo import task

    class Step:
        def __call__(self):
            pass

        def close(self):
            pass

    monkeypatch.setattr(task, "build", lambda *_: Step())
    monkeypatch.setattr(zoo, "_PRINTED_EVERY_S", 0.0)
    assert zoo.main(["cnn-cifar10-bs128", "--device", "cpu", "--steps", "3"]) == 0
    listed = zoo_program("cnn-cifar10-bs128")
    lines = capsys.readouterr().out.splitlines()
    assert [listed.printed_steps(line, 0) for line in lines] == [1, 2, 3]


def test_programs_run_together_are_timed_by_their_prints_and_all_ended(checkouts):
    together = [SMALL["leaves"][0], SMALL["lines"][0]]
    ran = run_together(together, checkouts, [{}, {}], cores(), window_s=0.7, start_s=60)
    epochs, lines = ran["jobs"]
    assert [epochs["exit"], lines["exit"]] == [None, None]
    assert any(
        after < before
        for (_, before), (_, after) in zip(epochs["stamps"], epochs["stamps"][1:], strict=False)
    )
    counts = [count for _, count in lines["stamps"]]
    assert counts == [10 * (number + 1) for number in range(len(counts))]
    assert not [each for each in psutil.process_iter() if str(checkouts) in _folder_of(each)]


def _folder_of(process):
    try:
        return process.cwd()
    except psutil.Error:
        return ""


def test_a_program_that_fails_ends_the_run_with_its_exit_code(checkouts):
    together = [SMALL["broken"][0], SMALL["lines"][0]]
    ran = run_together(together, checkouts, [{}, {}], cores(), window_s=60, start_s=60)
    assert [job["exit"] for job in ran["jobs"]] == [3, None]


def test_a_process_outside_the_programs_group_is_ended_too(checkouts):
    running = Running(SMALL["leaves"][0], checkouts, {}, cores(), began=0.0)
    while not running.stamps:
        assert running.exit_code is None
    child = int(re.search(r"child (\d+)", running.tail)[1])
    running.end()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


def test_what_a_file_of_results_holds_is_not_measured_again(checkouts, tmp_path, monkeypatch):
    small = tmp_path / "list.toml"
    small.write_text(
        "".join(
            f"[[program]]\nname = '{each.name}'\nkind = 'a'\nrepository = 'a/b'\ncommit = '0'\n"
            f"folder = '.'\ncommand = 'python train.py'\npace = '{each.pace}'\n"
            for each, _ in (SMALL["epochs"], SMALL["lines"])
        )
    )
    out = tmp_path / "results.jsonl"
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "measure",
            str(checkouts),
            "--out",
            str(out),
            "--devices",
            "cpu",
            "--list",
            str(small),
            "--no-zoo",
            "--parts",
            "alone",
            "mixes",
            "--mixes",
            "0",
            "1",
            "--alone-s",
            "0.1",
            "--mix-s",
            "0.1",
            "--again",
            "1",
            "--trees",
            str(tmp_path / "trees"),
        ],
    )
    assert measure.main() == 0
    first = out.read_text()
    *ids, again = (json.loads(line)["id"] for line in first.splitlines())
    assert sorted(ids) == [
        "alone/epochs",
        "alone/epochs/again",
        "alone/lines",
        "alone/lines/again",
        "mix/00/mps",
        "mix/00/mps-limits",
        "mix/00/naive",
    ]
    assert ids[1] == f"{ids[0]}/again"
    assert again == f"{ids[4]}/again"
    assert measure.main() == 0
    assert out.read_text() == first


def test_data_is_made_again_byte_by_byte(tmp_path):
    for name in ("first", "second"):
        words(tmp_path / name, words=22_000)
        image_folder(tmp_path / name / "images", classes=2, images=3, pixels=16)
    first, second = (
        [
            hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted((tmp_path / name).rglob("*.*"))
        ]
        for name in ("first", "second")
    )
    assert first == second
    assert len(first) == 3 + 2 * 3


def test_images_have_the_sizes_that_their_formats_name(tmp_path):
    images = pytest.importorskip("PIL.Image")
    mnist(tmp_path)
    raw = (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").read_bytes()
    sizes = [int.from_bytes(raw[at : at + 4], "big") for at in range(0, 16, 4)]
    assert sizes == [2051, 60_000, 28, 28]
    assert len(raw) == 16 + 60_000 * 28 * 28
    image_folder(tmp_path / "folder", classes=2, images=3, pixels=16)
    files = sorted((tmp_path / "folder").glob("*/*.jpg"))
    assert len(files) == 6
    with images.open(files[5]) as image:
        assert image.size == (16, 16)


def test_preparation_names_the_program_that_failed(tmp_path):
    good = program("good", "x", data=({"maker": "folder", "at": "output"},), prepare="touch done")
    bad = program("bad", "x", prepare="false")
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    assert [line.split(":")[0] for line in prepare_all([good, bad], tmp_path, None)] == ["bad"]
    assert {path.name for path in (tmp_path / "good").iterdir()} == {"done", "output"}


def test_the_pace_leaves_out_pauses_and_what_lies_between_epochs():
    stamps = [(0.1 * number, float(number)) for number in range(20)]
    stamps += [(stamps[-1][0] + 3 + 0.1 * number, 20.0 + number) for number in range(20)]
    stamps += [(stamps[-1][0] + 5 + 0.1 * number, float(number)) for number in range(20)]
    assert printed_step_s(stamps, (0, 100)) == pytest.approx(0.1)


def test_two_lines_in_the_window_are_no_pace():
    stamps = [(float(second), float(second)) for second in range(30)]
    assert printed_step_s(stamps, (10, 12)) is None
    assert printed_step_s(stamps, (10, 13)) == pytest.approx(1.0)


def results():
    """Of two jobs whose steps are as long as their profiles', and twice that in naive sharing."""
    names = ("resnet26-cifar10-bs128", "resnet50-imagenet64-bs128")
    profiles = {name: synthetic.profile(name, host_s=0.004, gpu_s=0.01) for name in names}

    def run(step_s, *members):
        stamps = [[step_s * count, float(count)] for count in range(0, 1000, 10)]
        jobs = [{"name": name, "exit": None, "stamps": stamps, "tail": ""} for name in members]
        return {"window": [0.0, 1000.0], "jobs": jobs}

    made = {
        f"profile/{name}": {
            "kind": "zoo",
            "seconds": 20.0,
            "exit": 0,
            "profile": json.loads(record_line(profile)),
        }
        for name, profile in profiles.items()
    }
    alone = {f"alone/{name}": run(0.01, name) for name in names}
    mix = {"mix/00/naive": {"sharing": "naive", "mode": "naive", **run(0.02, *names)}}
    return made | alone | mix


def test_predicted_steps_stand_beside_printed_ones():
    steps = printed_steps(results())
    assert [step.measured_s / step.alone_s for step in steps] == pytest.approx([2, 2])
    assert all(abs(step.slowdown_error) < 0.15 for step in steps)
    (row, whole) = program_scores(steps)
    assert (row.kind, row.steps, whole.mode) == ("zoo", 2, "all")
    assert row.width >= 1
    assert len(programs_table([row, whole]).splitlines()) == 4


def test_two_runs_of_a_mix_show_how_far_steps_differ_by_themselves():
    measured = results()
    measured["mix/00/naive/again"] = results()["mix/00/naive"]
    for job in measured["mix/00/naive/again"]["jobs"]:
        job["stamps"] = [[1.1 * second, steps] for second, steps in job["stamps"]]
    (row, _) = program_scores(printed_steps(measured))
    assert (row.steps, row.together) == (4, pytest.approx(0.1))
    assert row.alone == pytest.approx(0, abs=1e-9)
    (row, _) = program_scores(printed_steps(results()))
    assert row.together is None


def test_a_job_that_ran_alone_twice_is_compared_with_the_mean():
    measured = results()
    for key in [key for key in measured if key.startswith("alone/")]:
        again = json.loads(json.dumps(measured[key]))
        again["jobs"][0]["stamps"] = [
            [1.2 * second, steps] for second, steps in again["jobs"][0]["stamps"]
        ]
        measured[f"{key}/again"] = again
    assert [step.alone_s for step in printed_steps(measured)] == pytest.approx([0.011, 0.011])
    (row, _) = program_scores(printed_steps(measured))
    assert row.alone_twice == pytest.approx(0.2)
    assert row.alone == pytest.approx(1 - 1 / 1.1)
    (row, _) = program_scores(printed_steps(results()))
    assert row.alone_twice is None


def test_a_run_alone_may_count_as_a_second_moment_of_the_profile():
    measured = results()
    for key in [key for key in measured if key.startswith("alone/")]:
        for job in measured[key]["jobs"]:
            job["stamps"] = [[1.21 * second, steps] for second, steps in job["stamps"]]
    once, twice = printed_steps(measured), printed_steps(measured, two_moments=True)
    for one, two in zip(once, twice, strict=True):
        assert two.profiled_s == pytest.approx(1.1 * one.profiled_s)
        assert two.predicted_s.p50 > one.predicted_s.p50


def test_kept_results_are_scored_alike_and_name_no_folder_of_their_machine(tmp_path):
    measured = {key: {"id": key, **result} for key, result in results().items()}
    for result in measured.values():
        if "profile" in result:
            script = {"command": ["python", "train.py"], "folder": "/home/me/trees/{}/src"}
            name = result["profile"]["workload"]["name"]
            script["folder"] = script["folder"].format(name)
            result["profile"]["workload"]["script"] = script
            result["tail"] = "/home/me"
    raw, kept = tmp_path / "results.jsonl", tmp_path / "kept" / "results.jsonl.gz"
    raw.write_text("".join(json.dumps(result) + "\n" for result in measured.values()))
    keep.main(str(raw), str(kept))
    read = results_in(kept)
    assert read.keys() == measured.keys()
    assert "/home/me" in raw.read_text()
    assert "/home/me" not in json.dumps(read)
    assert printed_steps(read) == printed_steps(results())


def test_a_run_in_which_a_job_ended_is_not_scored():
    broken = results()
    broken["mix/00/naive"]["jobs"][0]["exit"] = 0
    assert printed_steps(broken) == []
