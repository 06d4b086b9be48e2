import json
import re

import pytest

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"


def test_without_a_job_the_bundled_ones_are_ranked(advisor):
    said = advisor("recommend")
    assert said.code == 0
    assert f"A  {RESNET} " in said.out
    assert " as fast as one after another" in said.out.splitlines()[0] + said.out.splitlines()[1]


@pytest.mark.parametrize(
    "words", [["recommend"], ["predict"], ["explain", "naive", "mps"], ["simulate"]]
)
def test_without_a_job_it_says_that_these_are_examples_and_how_to_name_ones_own(words, advisor):
    said = advisor(*words)
    assert said.code == 0
    assert said.err.startswith("no JOB given: these are examples. Name your own: ")
    assert advisor(*words, RESNET, BERT).err == ""


def test_details_show_every_plan_in_full_and_how_it_was_found(advisor):
    said = advisor("recommend", RESNET, BERT, "--details").out
    assert f"A  {RESNET}\n" in said
    assert "gain over serial" in said
    assert "Searched: every set of jobs was predicted" in said


def test_piped_output_has_no_colours(advisor):
    assert "\x1b" not in advisor("recommend").out


def test_jobs_with_counts_are_ranked_as_json_on_stdout_alone(advisor):
    said = advisor("recommend", f"{RESNET}:2", BERT, "--json", "--top", 2)
    document = json.loads(said.out)
    assert said.err == ""
    assert (document["schema"], document["gpu"]) == (1, "h200-141gb")
    assert len(document["plans"]) == 2
    assert [job["job"] for job in document["serial"]["jobs"]] == [RESNET, RESNET, BERT]
    assert document["serial"]["speedup_vs_serial"] == pytest.approx(1)


def test_the_same_question_has_the_same_answer(advisor):
    assert advisor("recommend", "--json").out == advisor("recommend", "--json").out


@pytest.mark.parametrize("objective", ["makespan", "throughput", "energy"])
def test_every_objective_can_be_asked_for(advisor, objective):
    document = json.loads(advisor("recommend", "--objective", objective, "--json").out)
    assert document["ranked_by"] == objective


def test_the_commands_of_a_plan_can_be_piped_into_a_shell(advisor):
    said = advisor("recommend", RESNET, BERT, "--commands", 1)
    assert f"./{BERT}.sh" in said.out
    assert "until all are done" not in said.out


@pytest.mark.parametrize(
    "sharing",
    [
        "serial",
        "naive",
        "mps",
        "mps=43,57",
        "mig=3g.71gb,4g.71gb@0",
        "mig=4g.71gb@0[1,2]/mps=60,40",
        "mig=7g.141gb@0/ci=3c[1]+4c[2]",
        "serial[1];naive[2]",
    ],
)
def test_every_way_of_sharing_can_be_predicted(advisor, sharing):
    document = json.loads(advisor("predict", RESNET, BERT, "--sharing", sharing, "--json").out)
    assert document["sharing"].startswith(sharing.partition(",")[0])
    assert document["confirmed_on_hardware"] is not sharing.startswith("mig")
    assert "until all are done" in advisor("predict", RESNET, BERT, "--sharing", sharing).out


def test_a_mix_that_does_not_fit_is_predicted_with_its_risk(advisor):
    document = json.loads(advisor("predict", "dlrm-29gb-bs128:2", "--json").out)
    assert document["oom_probability"] > 0.99


def test_a_job_file_is_read(advisor, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text(f'[[job]]\nprofile = "{BERT}"\ncopies = 2\nepochs = 3\n')
    assert f"A x2  {BERT}, 3 epochs " in advisor("recommend", "--jobs", file).out


def test_a_profile_is_named_by_its_path(advisor, measured):
    path = measured / "profiles" / "h200-141gb" / f"{BERT}.json"
    assert f"A x2  {BERT} " in advisor("recommend", f"{path}:2").out


def test_the_environment_names_the_gpu(advisor, monkeypatch):
    monkeypatch.setenv("ADVISOR_GPU", "a30-24gb")
    said = advisor("recommend", "bert-base-finetune-bs61").err
    assert f"Near: {BERT}" in said
    assert "measure it on the GPU in question (a30-24gb; --gpu names another)" in said


def test_the_library_gives_what_the_command_gives(advisor):
    from advisor import recommend

    document = json.loads(advisor("recommend", f"{RESNET}:2", BERT, "--json").out)
    found = recommend([f"{RESNET}:2", BERT], gpu="h200-141gb")
    assert found.best.makespan_s == pytest.approx(document["plans"][0]["makespan_s"])


def test_the_library_exports_what_it_names():
    import advisor as library

    assert all(getattr(library, name) for name in library.__all__)
    assert set(library.__all__) <= set(dir(library))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = library.nonsense


def test_without_root_no_plan_is_on_mig(advisor):
    document = json.loads(advisor("recommend", RESNET, BERT, "--no-root", "--json").out)
    assert not [plan for plan in document["plans"] if plan["sharing"].startswith("mig")]
    left_out = {each["sharing"]: each["why"] for each in document["left_out"]}
    assert "takes root" in left_out["mig"]


def test_jobs_of_different_users_are_not_put_under_mps(advisor, tmp_path):
    file = tmp_path / "jobs.toml"
    tables = [f'[[job]]\nprofile = "{BERT}"\nuser = "{user}"\n' for user in ("ada", "ben")]
    file.write_text("\n".join(tables))
    document = json.loads(advisor("recommend", "--jobs", file, "--json").out)
    assert not [plan for plan in document["plans"] if plan["sharing"].startswith("mps")]
    left_out = {each["sharing"]: each["why"] for each in document["left_out"]}
    assert "jobs are of ada and ben" in left_out["mps"]


def test_a_plan_may_choose_a_power_cap(advisor):
    words = ("--objective", "energy", "--power-cap", "auto", "--top", 99)
    document = json.loads(advisor("recommend", f"{RESNET}:3", *words, "--json").out)
    caps = {plan["power_cap_w"] for plan in document["plans"]}
    assert None in caps
    assert caps & {630.0, 560.0, 490.0, 420.0}
    assert re.search(r"at most \d+ W", advisor("recommend", f"{RESNET}:3", *words).out)


def test_what_is_no_power_cap_is_refused(advisor):
    said = advisor("recommend", "--power-cap", "some")
    assert said.code == 2
    assert "watts, e.g. 400, or auto" in said.err


def test_one_job_is_one_job_and_a_gain_is_said_as_being_faster(advisor):
    assert advisor("predict", BERT, "--sharing", "serial").out.startswith("1 job under serial on ")
    assert advisor("simulate", BERT).out.startswith("1 job under mps on 1 h200-141gb")
    said = advisor("predict", f"{BERT}:2", "--sharing", "naive").out
    assert re.search(r"; [\d.]+x as fast as one after another", said)
    assert "as long as alone" in said
    assert "times" not in said


@pytest.mark.parametrize("word", ["H200", "NVIDIA H200", "h200"])
def test_a_gpu_is_named_as_people_do(advisor, word, monkeypatch):
    words = ("predict", f"{BERT}:2", "--sharing", "time-slicing", "--json")
    document = json.loads(advisor(*words, "--gpu", word).out)
    assert (document["gpu"], document["sharing"]) == ("h200-141gb", "naive")
    monkeypatch.setenv("ADVISOR_GPU", word)
    assert json.loads(advisor(*words).out) == document


def test_the_library_takes_a_gpu_as_people_name_it(advisor):
    from advisor import predict

    assert advisor("gpus", "--json").code == 0
    assert predict([BERT], "timeslice", gpu="H200").prediction.gpu == "h200-141gb"


def test_a_gpu_that_may_be_several_is_refused_with_all_of_them(advisor):
    said = advisor("recommend", "--gpu", "a100")
    assert (said.code, said.out) == (2, "")
    assert "a100-40gb or a100-80gb" in said.err
