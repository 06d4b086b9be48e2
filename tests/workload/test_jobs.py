"""Jobs as words, in files of jobs, as arrivals over time, and with commands of their own."""

import shlex
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.files.writing import record_line
from advisor.workload.arrivals import read_arrivals
from advisor.workload.job import MAX_JOBS, Arrival, Job, parse_jobs, read_jobs
from advisor.workload.spec import Script, Workload, masked_words, secret_options
from advisor.workload.store import load_profile
from tests import synthetic

GPU = "h200-141gb"
BERT, RESNET = "bert-base-finetune-bs16", "resnet50-imagenet64-bs128"
SCRIPT = Script(
    command=("python", "train.py", "--lr", "0.1"), folder="/home/ada/net", environment={"SEED": "1"}
)
NET = Workload(
    name="net",
    source="script",
    model="net",
    family="net",
    batch=64,
    examples_per_epoch=6400,
    script=SCRIPT,
)
SCRIPTED = replace(synthetic.profile(), workload=NET)


def measured(folder, gpu=GPU):
    return partial(load_profile, gpu=gpu, folder=folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of profiles of two workloads and a script on one GPU, and nothing of the user's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    (tmp_path / "profiles" / GPU).mkdir(parents=True)
    for each in (synthetic.profile(BERT), synthetic.profile(RESNET), SCRIPTED):
        (tmp_path / "profiles" / GPU / f"{each.name}.json").write_text(record_line(each))
    return tmp_path / "profiles"


@pytest.fixture
def read(folder, tmp_path):
    """Reads a file of jobs, or of arrivals, with this text."""

    def run(text, name="jobs.toml", encoding="utf-8"):
        data = text if isinstance(text, bytes) else text.encode(encoding)
        (tmp_path / name).write_bytes(data)
        reader = read_jobs if name.endswith(".toml") else read_arrivals
        return reader(tmp_path / name, measured(folder))

    return run


def test_a_word_names_a_profile_or_its_path_with_copies_and_epochs(folder):
    path = folder / GPU / f"{BERT}.json"
    words = [RESNET, f"{RESNET}:2@150", f"{path}@0.5", f"{BERT}:2"]
    jobs = parse_jobs(words, measured(folder))
    assert [(job.name, job.epochs) for job in jobs] == [
        (RESNET, 1),
        (RESNET, 150),
        (RESNET, 150),
        (BERT, 0.5),
        (BERT, 1),
        (BERT, 1),
    ]


def test_a_folder_with_an_at_in_its_name_says_nothing_of_epochs(folder):
    (folder / "host@3").mkdir()
    path = folder / "host@3" / f"{BERT}.json"
    path.write_text((folder / GPU / f"{BERT}.json").read_text())
    assert [job.epochs for job in parse_jobs([str(path), f"{path}@2"], measured(folder))] == [1, 2]


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        (f"{RESNET}@", f"{RESNET}@3"),
        (f"{RESNET}@ten", f"{RESNET}@3"),
        (f"{RESNET}@3:2", f"{RESNET}:2@3"),
        (f"{RESNET}@50%", f"{RESNET}@3"),
        (f"{RESNET}:1e3", f"{RESNET}:2"),
        (f"{RESNET}@0", "above 0"),
        ("@3", "is not a JOB"),
        ("bert-base-finetune-bs61", BERT),
        *(
            (f"{RESNET}:{count}", f"1 to {MAX_JOBS}")
            for count in ("0", "-2", "49", "1000000", "9" * 5000, "2.5", "", "two")
        ),
    ],
)
def test_a_word_that_makes_no_sense_is_refused_with_the_remedy(folder, word, remedy):
    with pytest.raises(InvalidInput, match=remedy):
        parse_jobs([word], measured(folder))


def test_commas_may_separate_jobs(folder):
    by_commas = parse_jobs([f"{RESNET}:2,{BERT}@3,", f"{BERT}"], measured(folder))
    assert by_commas == parse_jobs([f"{RESNET}:2", f"{BERT}@3", BERT], measured(folder))
    comma = folder / "a,b.json"
    comma.write_text((folder / GPU / f"{BERT}.json").read_text())
    assert len(parse_jobs([str(comma)], measured(folder))) == 1


def test_many_small_counts_cannot_exceed_the_limit_together(folder):
    words = [f"{RESNET}:90", f"{BERT}:90"]
    assert len(parse_jobs(words, measured(folder), gpus=4)) == 180
    with pytest.raises(InvalidInput, match=f"1 to {MAX_JOBS}"):
        parse_jobs(words, measured(folder))
    with pytest.raises(InvalidInput, match="1 to 1,000"):
        parse_jobs([f"{RESNET}:1001"], measured(folder), gpus=64)
    with pytest.raises(InvalidInput, match="no job is given"):
        parse_jobs([], measured(folder))


@pytest.mark.parametrize("word", [BERT, "profiles/BERT.json"])
def test_a_job_measured_on_another_gpu_is_refused_with_the_gpu_that_it_ran_on(folder, word):
    word = word.replace("profiles/BERT", str(folder / GPU / BERT))
    with pytest.raises(InvalidInput, match=GPU):
        parse_jobs([word], measured(folder, "a30-24gb"))


def test_a_file_of_jobs_sets_what_is_to_run(read):
    first, second, third = read(
        f'[[job]]\nprofile = "{RESNET}"\ncopies = 2\nepochs = 1.5\nvalidation_s = 40\n'
        f'checkpoint_s = 2\nexamples_per_epoch = 1280\nuser = "ada"\nisolated = true\n\n'
        f'[[job]]\nprofile = "profiles/{GPU}/{BERT}.json"\ndata_parallel = true\ndeadline_s = 90\n',
        encoding="utf-8-sig",  # as Windows writes it
    )
    assert first == second
    assert (first.epochs, first.validation_s, first.checkpoint_s) == (1.5, 40, 2)
    assert (first.user, first.isolated, first.profile.workload.steps_per_epoch) == ("ada", True, 10)
    assert third == Job(synthetic.profile(BERT), data_parallel=True, deadline_s=90)


@pytest.mark.parametrize(
    ("line", "field", "read_as"),
    [
        ('deadline_s = "2h"', "deadline_s", 7200),
        ('deadline_s = "1h 30 min"', "deadline_s", 5400),
        ('deadline_s = "1-00:00:30"', "deadline_s", 86_430),
        ('protect = "10 %"', "protect", 0.1),
    ],
)
def test_a_file_of_jobs_holds_times_and_shares_as_people_write_them(read, line, field, read_as):
    (job,) = read(f"[[job]]\nprofile = '{BERT}'\n{line}\n")
    assert getattr(job, field) == read_as


def test_a_file_of_jobs_gives_any_profile_a_command(read, folder):
    first, second, third, fourth = read(
        '[[job]]\nprofile = "net"\n'
        '[[job]]\nprofile = "net"\ncommand = ["python", "train.py", "--lr", "0.2"]\n'
        'folder = "elsewhere"\nenvironment = {SEED = "2", WANDB_MODE = "offline"}\n'
        '[[job]]\nprofile = "net"\nenvironment = {SEED = "3"}\n'
        f'[[job]]\nprofile = "{RESNET}"\ncommand = "./train \'a b\'"\n'  # as a shell has it
    )
    here = folder.parent
    assert [each.profile.workload.script for each in (first, second, third, fourth)] == [
        SCRIPT,
        Script(
            command=("python", "train.py", "--lr", "0.2"),
            folder=str(here / "elsewhere"),
            environment={"SEED": "2", "WANDB_MODE": "offline"},
        ),
        replace(SCRIPT, environment={"SEED": "3"}),
        Script(command=("./train", "a b"), folder=str(here)),
    ]
    assert first == second == third, "they train the same, whatever starts them"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("copy = 2", "copy"),
        ("copies = 0", "copies"),
        ("copies = 1.5", "copies"),
        ("epochs = 0", "epochs"),
        ("epochs = nan", "epochs"),
        ("examples_per_epoch = 0", "examples_per_epoch"),
        ("user = 7", "user"),
        ("data_parallel = 'yes'", "data_parallel"),
        ("isolated = 2", "isolated"),
        ("deadline_s = nan", "deadline_s"),
        ("command = 'python \"t.py'", "command"),
        ("command = []", "command"),
        ('command = ["python", "\\u0000"]', "program"),
        ('command = ["a"]\nenvironment = {CUDA_MPS_PIPE_DIRECTORY = "/x"}', "PIPE_DIRECTORY"),
        ('command = ["a"]\nenvironment = {"A=B" = "1"}', "A=B"),
        ('command = ["a"]\nenvironment = {SEED = 1}', "environment"),
        ('folder = "x"', "folder"),
    ],
)
def test_a_wrong_line_in_a_file_of_jobs_is_refused_with_file_and_field(read, line, named):
    with pytest.raises(InvalidInput, match=r"jobs\.toml") as refusal:
        read(f"[[job]]\nprofile = '{BERT}'\n{line}\n")
    assert named in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        f"[[jobs]]\nprofile = '{BERT}'",
        "[[job]]\ncopies = 2",
        f"[job]\nprofile = '{BERT}'",
        "job = 1979-05-27",
        "job = []",
        "[[job]",
    ],
)
def test_a_file_without_jobs_is_refused_with_its_name(read, text):
    with pytest.raises(InvalidInput, match=r"jobs\.toml"):
        read(text)


def test_starts_validation_and_checkpoints_are_work_but_not_part_of_an_epoch():
    profile = synthetic.profile(host_s=0.01, gpu_s=0.008)
    plain, busy = Job(profile), Job(profile, epochs=2, validation_s=3, checkpoint_s=1)
    assert busy.work_steps == pytest.approx(2 * (plain.work_steps + 400))
    assert busy.profile.epoch_s == plain.profile.epoch_s
    assert Job(profile, start_s=5, gpus=2).alone_s == pytest.approx(plain.alone_s / 2 + 5)
    endless = replace(profile.workload, examples_per_epoch=None)
    assert Job(replace(profile, workload=endless)).work_steps is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 1e300},
        {"epochs": 5e-324},
        {"start_s": -1},
        {"deadline_s": 1e300},
        {"protect": 20.0},
        {"protect": float("nan")},
    ],
)
def test_a_job_of_centuries_of_no_time_or_with_a_share_in_per_cent_is_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Job(synthetic.profile(), **wrong)


ARRIVALS = f"arrival_s,job,epochs,validation_s\n12.5,{BERT},3,40\n0,{RESNET},0.5,0\n"


def test_each_line_of_arrivals_is_a_job_and_when_it_comes(read):
    first, second = read(ARRIVALS, "arrivals.csv")
    assert (first.arrival_s, first.job.name, first.job.epochs) == (12.5, BERT, 3)
    assert (second.arrival_s, second.job.name, second.job.validation_s) == (0, RESNET, 0)
    windows = f"\ufeffjob,arrival_s\r\n{BERT},0\r\n\r\n{BERT},5\r\n"
    first, second = read(windows, "arrivals.csv")
    assert first.job is second.job, "so that a long trace stays small"


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_arrivals_may_be_separated_by_other_signs_and_have_times_with_units(read, sign):
    text = f"Arrival_s,Job,Epochs\n00:01:30,{BERT},1.5\n2 min,{BERT},\n".replace(",", sign)
    first, second = read(text.replace("1.5", "1,5"), "arrivals.csv")
    assert (first.arrival_s, second.arrival_s) == (90, 120)
    assert (first.job.epochs, second.job.epochs) == (1.5, 1)


@pytest.mark.parametrize(
    "text",
    [
        f"arrival_s,job,colour\n0,{BERT},red\n",
        f"arrival_s,job,job\n0,{BERT},{BERT}\n",
        f"arrival_s,job\n-1,{BERT}\n",
        f"arrival_s,job\n1700000000,{BERT}\n",
        f"arrival_s,job,epochs,duration_s\n0,{BERT},1,60\n",
        f"arrival_s,job,epochs\n0,{BERT},3x\n",
        f"arrival_s,job,epochs\n0,{BERT},1e300\n",
        f"arrival_s,job,gpus\n0,{BERT},half\n",
        f'arrival_s,job\n0,"{BERT}\n',
        b"arrival_s,job\n0,\xff\n",
        f"arrival_s,job\n0,{BERT}\x00\n",
        "arrival_s,job\n0,bert-base-finetune-bs61\n",
    ],
    ids=range(12),
)
def test_arrivals_that_cannot_be_are_refused_with_their_file(read, text):
    with pytest.raises(InvalidInput, match=r"arrivals\.csv"):
        read(text, "arrivals.csv")


CELLS = st.sampled_from(["", " ", "0", "1.0", "nan", "x", BERT, "arrival_s", "job", "epochs"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(CELLS, max_size=4), max_size=3))
@example(rows=[["arrival_s", "job", "epochs"], ["", RESNET, "1.0"]])
@example(rows=[["arrival_s", "job"], ["0", ""]])
@example(rows=[["", RESNET, "1.0"]])
def test_any_table_is_arrivals_or_refused_with_its_file(read, rows):
    try:
        answer = read("\n".join(map(",".join, rows)), "arrivals.csv")
    except InvalidInput as error:
        answer = str(error)
    assert isinstance(answer[0], Arrival) or "arrivals.csv" in answer


def test_an_arrival_counted_from_1970_is_refused_with_the_remedy():
    with pytest.raises(InvalidInput, match="Subtract the time"):
        Arrival(Job(synthetic.profile()), 1.7e18)


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ()},
        {"folder": "here"},
        {"throughput": "("},
        {"throughput": "no group"},
        {"seconds_per_step": "(.)(.)"},
        {"seconds_per_step": "[0-9"},
        {"command": ("a",) * 10_001},
    ],
)
def test_a_script_that_nothing_can_start_is_refused(wrong):
    with pytest.raises(InvalidInput):
        Script(**({"command": ("python",), "folder": "/"} | wrong))
    with pytest.raises(InvalidInput):
        replace(NET, script=None)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("python train.py --config base.py", "train.py"),
        ("python -m pkg.train --epochs 3", "pkg.train"),
        ("torchrun -m train", "train"),
        ("python -m torch.distributed.run train.py", "train.py"),
        ("accelerate launch --config_file c.yaml train.py", "train.py"),
        ("uv run --with rich train.py", "train.py"),
        ("uv run -m pkg.train", "pkg.train"),
        ("conda run -n env python train.py", "train.py"),
        ("env A=b HOOK=h.py python train.py", "train.py"),
        ("numactl -m 0 python -m pkg.train", "pkg.train"),
        ("my-wrap python train.py", "train.py"),
        ("bash -c 'cd here && python train.py'", "train.py"),
        ("./train --lr 1", "./train"),
        ("fairseq-train data.py", "fairseq-train"),
        ("python -c 'import train'", None),
        ("make -C src LR=3 train", "train"),
        ("make", None),
        ("bash -c 'echo \"'", None),
        ("env", None),
        ("conda run -n env mine", None),
    ],
)
def test_a_script_is_called_by_its_file_or_module_and_not_by_what_starts_it(line, program):
    assert Script(command=tuple(shlex.split(line)), folder="/").file == program


def test_bare_numbers_can_be_started_once_a_command_is_named_and_a_step_is_known():
    workload = Workload(name="net", source="numbers", model="net", family="net", batch=1)
    with pytest.raises(InvalidInput, match="job file"):
        workload.check_startable()
    replace(workload, script=SCRIPT).check_startable()
    with pytest.raises(InvalidInput, match="--step-s"):
        replace(workload, source="duration", script=SCRIPT).check_startable()


@pytest.mark.parametrize("name", ["--token", "--hf-token", "--api_key", "--apikey", "--password"])
def test_the_value_of_a_secret_option_is_hidden_however_it_is_given(name):
    command = ["python", "train.py", f"{name}=hidden", name, "hidden", "--max-tokens", "512"]
    assert "hidden" not in " ".join(masked_words(command))
    assert list(masked_words(command))[-2:] == ["--max-tokens", "512"]
    assert secret_options(command) == (name,)
