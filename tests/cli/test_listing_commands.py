import json

from advisor.hardware.catalogue import catalogue


def test_the_bare_command_prints_help_and_the_line_to_try_first(advisor):
    said = advisor()
    assert said.code == 0
    assert said.out.endswith("Try this first:  advisor recommend\n")
    for verb in ("recommend", "predict", "profile", "validate", "fit", "evaluate", "app"):
        assert f"\n  {verb} " in said.out


def test_help_names_every_exit_code(advisor):
    said = advisor("--help").out
    for code, meaning in enumerate(("done", "failed", "wrong use", "nothing fits", "no GPU")):
        assert f"{code} {meaning}" in " ".join(said.split())
    assert "5 measured outside" in " ".join(said.split())


def test_help_says_which_environment_variables_hold(advisor):
    said = advisor("recommend", "--help").out
    assert all(name in said for name in ("ADVISOR_GPU", "ADVISOR_PROFILES", "ADVISOR_MODELS"))


def test_the_version_is_told(advisor):
    from advisor import __version__

    assert advisor("--version").out == f"advisor {__version__}\n"


def test_without_a_driver_the_catalogue_is_printed_all_the_same(advisor):
    said = advisor("gpus")
    assert said.code == 0
    assert all(key in said.out for key in catalogue())
    # On a machine with a GPU its lines stand there instead.
    assert said.out.count("No GPU at hand: ") == 1 or "GPU 0: " in said.out


def test_gpus_as_json_is_one_document(advisor):
    document = json.loads(advisor("gpus", "--json").out)
    assert [each["key"] for each in document["catalogue"]] == list(catalogue())


def test_profiles_lists_what_can_be_named_as_a_job(advisor):
    said = advisor("profiles")
    assert "bert-base-finetune-bs16" in said.out
    document = json.loads(advisor("profiles", "--json").out)
    assert "bert-base-finetune-bs16" in [each["name"] for each in document["profiles"]]


def test_a_gpu_without_profiles_says_how_to_measure(advisor):
    said = advisor("profiles", "--gpu", "a30-24gb")
    assert said.code == 0
    assert "Nothing was measured on a30-24gb yet" in said.out


def test_workloads_lists_the_zoo(advisor):
    assert "gpt2-small-pretrain-bs8" in advisor("workloads").out
    assert json.loads(advisor("workloads", "--json").out)["schema"] == 1
