import json

import pytest

from advisor.workload.writing import profile_text, write_whole
from tests import synthetic
from tests.cli.conftest import GPU

DLRM = "dlrm-29gb"


@pytest.fixture(autouse=True)
def at_batch_32_too(tmp_path):
    """The user's own profile of what is shipped at batch 128."""
    small = synthetic.profile(f"{DLRM}-bs32", host_s=0.008, gpu_s=0.002, memory_mib=60_000)
    path = tmp_path / "nobody" / "advisor" / "profiles" / GPU / f"{small.name}.json"
    write_whole(path, profile_text(small))


def test_the_largest_batch_of_a_slice_is_said_first(advisor):
    said = advisor("batch", DLRM, "--on", "7g.141gb,whole")
    assert said.code == 0
    assert said.out.startswith(f"7g.141gb holds {DLRM} up to batch ")
    assert "whole GPU" in said.out
    assert "Measured at batch 32, 128; * other sizes are estimated from these." in said.out
    assert "not confirmed on hardware" in said.out


def test_the_document_has_the_largest_batch_and_its_memory(advisor):
    found = json.loads(advisor("batch", DLRM, "--on", "whole", "--json").out)
    assert found["measured_batches"] == [32, 128]
    (held,) = found["slices"]
    assert held["slice"] is None
    assert held["largest_batch"] >= 32
    assert held["memory_mib"]["p95"] <= held["memory_capacity_mib"]


@pytest.mark.parametrize("name", ["dlrm-29gb", "dlrm-29gb-bs32", "dlrm-29gb-bs64"])
def test_any_size_in_the_name_means_the_same_job(advisor, name):
    found = json.loads(advisor("batch", name, "--on", "whole", "--json").out)
    assert (found["job"], found["measured_batches"]) == ("dlrm-29gb", [32, 128])


def test_other_commands_take_a_size_between_as_a_job(advisor):
    found = json.loads(advisor("predict", "dlrm-29gb-bs64", "--sharing", "serial", "--json").out)
    assert found["estimated_batches"] == {"dlrm-29gb-bs64": [32, 128]}
    assert found["confirmed_on_hardware"] is False
    assert "is estimated from batch sizes 32, 128." in advisor("predict", "dlrm-29gb-bs64").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nobody",), 2, "no profile is called 'nobody'"),
        ((DLRM, "--on", "2g.10gb"), 2, "It has 1g.18gb"),
        (("dlrm-29gb-bs32", "bert-base-finetune-bs16"), 2, "differs from"),
    ],
)
def test_wrong_words_are_refused_with_what_would_do(advisor, words, code, said):
    answer = advisor("batch", *words)
    assert answer.code == code
    assert said in answer.err
