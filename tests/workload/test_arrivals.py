"""Jobs that come over time, read from a CSV."""

from functools import partial

import pytest

from advisor.errors import InvalidInput
from advisor.workload.job_file import read_arrivals
from advisor.workload.store import load_profile
from advisor.workload.writing import profile_text
from tests import synthetic

GPU = "h200-141gb"
BERT, RESNET = "bert-base-finetune-bs16", "resnet50-imagenet64-bs128"


def measured(folder, gpu=GPU):
    return partial(load_profile, gpu=gpu, given=folder)


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads a CSV of these words beside a folder of two profiles."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    (tmp_path / "profiles" / GPU).mkdir(parents=True)
    for name in (BERT, RESNET):
        text = profile_text(synthetic.profile(name))
        (tmp_path / "profiles" / GPU / f"{name}.json").write_text(text)

    def run(text):
        (tmp_path / "arrivals.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_arrivals(tmp_path / "arrivals.csv", measured(tmp_path / "profiles"))

    return run


def test_each_line_is_a_job_and_when_it_comes(read):
    found = read(f"arrival_s,job,epochs\n12.5,{BERT},3\n0,{RESNET},0.5\n")
    assert [(each.arrival_s, each.job.name, each.job.epochs) for each in found] == [
        (12.5, BERT, 3),
        (0, RESNET, 0.5),
    ]


def test_columns_come_in_any_order_and_with_those_of_a_job_file(read):
    (found,) = read(f"checkpoint_s,job,validation_s,arrival_s\n2,{BERT},40,7\n")
    assert (found.job.validation_s, found.job.checkpoint_s, found.job.epochs) == (40, 2, 1)


def test_equal_jobs_are_one_so_that_a_long_trace_stays_small(read):
    first, second = read(f"\ufeffarrival_s,job\r\n0,{BERT}\r\n\r\n5,{BERT}\r\n")
    assert first.job is second.job


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "arrivals.csv:1: its first line names the columns arrival_s, job"),
        ("arrival_s,job\n", "it lists no job"),
        (f"job\n{BERT}\n", "its first line names the columns"),
        (f"arrival_s,job,colour\n0,{BERT},red\n", "got arrival_s,job,colour"),
        (f"arrival_s,job,job\n0,{BERT},{BERT}\n", "each once"),
        (f"arrival_s,job\n0,{BERT},3\n", "arrivals.csv:2: 3 fields for 2 columns"),
        ("arrival_s,job\n0\n", "arrivals.csv:2: 1 fields for 2 columns"),
        (f"arrival_s,job\n0,{BERT}\nsoon,{BERT}\n", "arrivals.csv:3: arrival_s is a number"),
        (f"arrival_s,job\nnan,{BERT}\n", "arrival_s must be at least 0, got nan"),
        (f"arrival_s,job\ninf,{BERT}\n", "arrival_s must be at least 0, got inf"),
        (f"arrival_s,job\n-1,{BERT}\n", "arrival_s must be at least 0, got -1"),
        (f"arrival_s,job,epochs\n0,{BERT},0\n", "epochs must be above 0"),
        (f"arrival_s,job,epochs\n0,{BERT},nan\n", "epochs must be above 0"),
        (f"arrival_s,job,epochs\n0,{BERT},\n", "epochs is a number, got ''"),
        (f"arrival_s,job,validation_s\n0,{BERT},-3\n", "validation_s must be at least 0"),
        (f'arrival_s,job\n0,"{BERT}\n', "unexpected end of data"),
        (b"arrival_s,job\n0,\xff\n", "can't decode byte"),
        (f"arrival_s,job,epochs\n0,{BERT},5e-324\n", "epochs must be finite and at least 1e-09"),
        (f"arrival_s,job,epochs\n0,{BERT},1e300\n", "epochs must be at most 1,000,000,000"),
        (f"arrival_s,job,validation_s\n0,{BERT},1e300\n", "validation_s must be at most"),
        (f"arrival_s,job\n1700000000000000000,{BERT}\n", "or in nanoseconds"),
        (f"arrival_s,job\n1700000000,{BERT}\n", "Of times since 1970"),
        (f"arrival_s,job\n0,{BERT}\x00\n", "arrivals.csv:2"),
        (f"\x00arrival_s,job\n0,{BERT}\n", "its first line names the columns"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(read, text, said):
    with pytest.raises(InvalidInput, match=r"arrivals\.csv") as refused:
        read(text)
    assert said in str(refused.value)


def test_a_job_that_nobody_measured_is_refused_with_the_near_names(read):
    with pytest.raises(InvalidInput, match=rf"arrivals\.csv:2: .*Near: {BERT}"):
        read("arrival_s,job\n0,bert-base-finetune-bs61\n")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        read_arrivals(tmp_path / "none.csv", measured(tmp_path))
