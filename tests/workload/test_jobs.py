from dataclasses import replace
from functools import partial

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.workload.job import Job
from advisor.workload.job_count import MAX_JOBS
from advisor.workload.job_file import read_jobs
from advisor.workload.job_words import parse_jobs
from advisor.workload.store import load_profile
from advisor.workload.writing import profile_text
from tests import synthetic

GPU = "h200-141gb"
BERT, RESNET = "bert-base-finetune-bs16", "resnet50-imagenet64-bs128"


def measured(folder, gpu=GPU):
    return partial(load_profile, gpu=gpu, given=folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of profiles of two workloads on one GPU, and nothing of the user's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    (tmp_path / "profiles" / GPU).mkdir(parents=True)
    for name in (BERT, RESNET):
        text = profile_text(synthetic.profile(name))
        (tmp_path / "profiles" / GPU / f"{name}.json").write_text(text)
    return tmp_path / "profiles"


def names(jobs):
    return [job.name for job in jobs]


def test_copies_expand_in_the_order_asked(folder):
    assert names(parse_jobs([f"{RESNET}:2", BERT], measured(folder))) == [RESNET, RESNET, BERT]


def test_a_profile_can_be_named_by_its_path_with_a_count(folder):
    path = folder / GPU / f"{BERT}.json"
    assert names(parse_jobs([f"{path}:2", str(path)], measured(folder))) == [BERT] * 3


def test_epochs_stand_behind_an_at_after_name_or_count(folder):
    path = folder / GPU / f"{BERT}.json"
    jobs = parse_jobs([RESNET, f"{RESNET}:2@150", f"{path}@0.5"], measured(folder))
    assert [(job.name, job.epochs) for job in jobs] == [
        (RESNET, 1), (RESNET, 150), (RESNET, 150), (BERT, 0.5)
    ]  # fmt: skip


def test_a_folder_with_an_at_in_its_name_says_nothing_of_epochs(folder):
    (folder / "host@3").mkdir()
    path = folder / "host@3" / f"{BERT}.json"
    path.write_text((folder / GPU / f"{BERT}.json").read_text())
    assert [job.epochs for job in parse_jobs([str(path), f"{path}@2"], measured(folder))] == [1, 2]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (f"{RESNET}@", "EPOCHS is a number above 0, e.g. NAME@3"),
        (f"{RESNET}@ten", "EPOCHS is a number above 0"),
        (f"{RESNET}@nan", "EPOCHS is a number above 0"),
        (f"{RESNET}@3:2", "NAME:2@3"),
        (f"{RESNET}@0", "epochs must be above 0, got 0"),
        (f"{RESNET}@-1", "epochs must be above 0, got -1"),
        (f"{RESNET}:@3", "COPIES is a whole number"),
        ("@3", "'@3' names no job"),
    ],
)
def test_epochs_that_make_no_sense_are_refused(folder, word, said):
    with pytest.raises(InvalidInput, match=said):
        parse_jobs([word], measured(folder))


@pytest.mark.parametrize(
    ("count", "said"),
    [
        ("0", "with 0 copies there is no job"),
        ("-2", "there cannot be -2 copies"),
        ("1000000", "1,000,000 copies are more than the 48 that are planned at once on one GPU"),
        ("49", "`advisor recommend --gpus N` plans 48 for each GPU, 768 at most"),
        ("9" * 5000, "COPIES is a whole number"),
        ("2.5", "COPIES is a whole number"),
        ("", "COPIES is a whole number"),
        ("two", "COPIES is a whole number"),
    ],
)
def test_a_count_that_makes_no_sense_is_refused_with_the_range(folder, count, said):
    with pytest.raises(InvalidInput, match=said) as refusal:
        parse_jobs([f"{RESNET}:{count}"], measured(folder))
    assert f"1 to {MAX_JOBS}" in str(refusal.value)


def test_more_gpus_take_more_jobs_up_to_what_a_search_holds(folder):
    assert len(parse_jobs([f"{RESNET}:90", f"{BERT}:90"], measured(folder), gpus=4)) == 180
    with pytest.raises(InvalidInput, match=r"at once on 4 GPUs: MPS serves no more. Use 1 to 192;"):
        parse_jobs([f"{RESNET}:100", f"{BERT}:100"], measured(folder), gpus=4)
    with pytest.raises(InvalidInput, match=r"a search holds no more. Use 1 to 768; `advisor sim"):
        parse_jobs([f"{RESNET}:769"], measured(folder), gpus=64)


def test_many_small_counts_cannot_exceed_the_limit_together(folder):
    with pytest.raises(InvalidInput, match="60 jobs are more than the 48 that"):
        parse_jobs([f"{RESNET}:30", f"{BERT}:30"], measured(folder))


def test_no_job_at_all_is_refused(folder):
    with pytest.raises(InvalidInput, match="no job is given"):
        parse_jobs([], measured(folder))


def test_a_misspelt_name_lists_the_near_ones(folder):
    with pytest.raises(UnknownName, match=BERT):
        parse_jobs(["bert-base-finetune-bs61"], measured(folder))


def test_a_gpu_without_profiles_says_which_gpus_have_some(folder):
    with pytest.raises(InvalidInput, match=f"on a30-24gb; there are profiles of {GPU}"):
        parse_jobs([BERT], measured(folder, "a30-24gb"))


def test_a_profile_of_another_gpu_than_asked_for_is_refused(folder):
    with pytest.raises(InvalidInput, match=f"measured on {GPU}, but a30-24gb was asked for"):
        parse_jobs([str(folder / GPU / f"{BERT}.json")], measured(folder, "a30-24gb"))


def test_a_job_file_says_what_is_to_run(folder, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'[[job]]\nprofile = "{RESNET}"\ncopies = 2\nepochs = 1.5\nvalidation_s = 40\n'
        f"checkpoint_s = 2\nexamples_per_epoch = 1280\n\n"
        f'[[job]]\nprofile = "profiles/{GPU}/{BERT}.json"\n'
    )
    first, second, third = read_jobs(file, measured(folder))
    assert first == second
    assert (first.epochs, first.validation_s, first.checkpoint_s) == (1.5, 40, 2)
    assert first.profile.workload.steps_per_epoch == 10
    assert third == Job(synthetic.profile(BERT))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[job]]\nprofile = 'P'\ncopy = 2", "copy"),
        ("[[jobs]]\nprofile = 'P'", "job"),
        ("[[job]]\ncopies = 2", "profile"),
        ("[[job]]\nprofile = 'P'\ncopies = 0", "with 0 copies"),
        ("[[job]]\nprofile = 'P'\ncopies = 1000000", "1,000,000 copies"),
        ("[[job]]\nprofile = 'P'\ncopies = 1.5", "copies"),
        ("[[job]]\nprofile = 'P'\nepochs = 0", "epochs must be above 0"),
        ("[[job]]\nprofile = 'P'\nepochs = nan", "epochs"),
        ("[[job]]\nprofile = 'P'\nvalidation_s = -1", "validation_s must be at least 0"),
        ("[[job]]\nprofile = 'P'\nexamples_per_epoch = 0", "examples_per_epoch"),
        ("[[job]]\nprofile = 'P'\nuser = 7", "user"),
        ("[[job]]\nprofile = 'P'\nuser = ' '", "a user has a name"),
        ("[[job]]\nprofile = 'P'\ndata_parallel = 'yes, please'", "data_parallel"),
        ("[[job]]\nprofile = 'P'\nisolated = 2", "isolated"),
        ("[[job]]\nprofile = 'P'\ndeadline_s = 0", "deadline_s must be above 0"),
        ("[[job]]\nprofile = 'P'\ndeadline_s = nan", "deadline_s"),
        ("[[job]]\nprofile = 'P'\nbatches = 64", "batches"),
        ("[[job]]\nprofile = 'P'\nbatches = [16]", "batches are sizes other than its own 16"),
        (
            "[[job]]\nprofile = 'P'\nbatches = [64]",
            "no profile is called 'bert-base-finetune-bs64'",
        ),
        ("[[job]]\nprofile = 'P'\nbatches = [0]", "no profile is called"),
        ("[job]\nprofile = 'P'", r"in single brackets: write \[\[job\]\] before each"),
        (
            "[[job]]\nprofile = 'P'\ncommand = 'python t.py'",
            r"command: write a list, as \[\.\.\.\]",
        ),
        ("job = 1979-05-27", "job"),
        ("job = []", "it has no .*job.* table"),
        ("[[job]", "Correct the file"),
    ],
)
def test_a_job_file_that_is_wrong_is_refused_with_file_and_field(folder, tmp_path, text, said):
    file = tmp_path / "jobs.toml"
    file.write_text(text.replace("'P'", f"'{BERT}'"))
    with pytest.raises(InvalidInput, match=said) as refusal:
        read_jobs(file, measured(folder))
    assert str(file) in str(refusal.value)


def test_a_job_file_may_begin_as_windows_writes_it(folder, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text(f"[[job]]\nprofile = '{BERT}'", encoding="utf-8-sig")
    (job,) = read_jobs(file, measured(folder))
    assert job.name == BERT


def test_validation_and_checkpoints_are_work_but_not_part_of_an_epoch():
    profile = synthetic.profile(host_s=0.01, gpu_s=0.008)
    plain, busy = Job(profile), Job(profile, epochs=2, validation_s=3, checkpoint_s=1)
    assert busy.work_steps == pytest.approx(2 * (plain.work_steps + 400))
    assert busy.profile.epoch_s == plain.profile.epoch_s


def test_work_is_unknown_where_no_pass_is_known():
    profile = synthetic.profile()
    endless = replace(profile, workload=replace(profile.workload, examples_per_epoch=None))
    assert Job(endless).work_steps is None


def test_a_job_file_names_other_batch_sizes_that_would_do(folder, tmp_path):
    larger = synthetic.profile(BERT, gpu_s=0.02)
    asked = replace(larger.workload, name="bert-base-finetune-bs32", batch=32)
    text = profile_text(replace(larger, workload=asked))
    (folder / GPU / "bert-base-finetune-bs32.json").write_text(text)
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'[[job]]\nprofile = "{BERT}"\nbatches = [32]\nepochs = 2\nexamples_per_epoch = 320\n'
        f'user = "ada"\nisolated = true\n\n[[job]]\nprofile = "{RESNET}"\ndata_parallel = true\n'
        f"deadline_s = 90\n"
    )
    first, second = read_jobs(file, measured(folder))
    assert (first.user, first.isolated, first.data_parallel) == ("ada", True, False)
    assert (second.user, second.isolated, second.data_parallel) == (None, False, True)
    assert [(each.batch, each.work_steps) for each in first.variants] == [(16, 40), (32, 20)]
    assert second.variants == (second,)
    assert (first.deadline_s, second.deadline_s) == (None, 90)


def test_another_training_is_no_choice_of_batch():
    job, other = synthetic.profile(BERT), synthetic.profile(RESNET)
    with pytest.raises(InvalidInput, match="in more than its batch"):
        Job(job, choices=(other,))


def test_batches_are_found_by_names_that_say_them(folder, tmp_path):
    odd = replace(synthetic.profile(BERT).workload, name="mine")
    (folder / GPU / "mine.json").write_text(
        profile_text(replace(synthetic.profile(BERT), workload=odd))
    )
    file = tmp_path / "jobs.toml"
    file.write_text('[[job]]\nprofile = "mine"\nbatches = [32]\n')
    with pytest.raises(InvalidInput, match="names that end in -bs16"):
        read_jobs(file, measured(folder))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (20.0, "protect is a share .*; got 20: 20 % is 0.2$"),
        (-0.1, "protect is a share of at least 0 and below 5, .*; got -0.1$"),
        (float("nan"), "got nan$"),
        (float("inf"), "got inf$"),
    ],
)
def test_a_share_by_which_a_protected_job_may_slow_is_not_in_per_cent(share, said):
    with pytest.raises(InvalidInput, match=said):
        Job(synthetic.profile(), protect=share)
    assert Job(synthetic.profile(), protect=0.2).protect == 0.2
