"""Outputs of `nvidia-smi` for a job that ran alone, by drivers of several years."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.workload.nvidia_smi import read_nvidia_smi

FOLDER = Path(__file__).parent / "nvidia_smi"


def printed(file):
    return (FOLDER / file).read_text()


@pytest.mark.parametrize(
    ("file", "gpu", "memory_mib", "gpu_utilization", "power_w"),
    [
        ("418.txt", None, 35, 0.03, 17),
        ("470.txt", "a100-40gb", 12307, 0.64, 144),
        ("550.txt", "a100-80gb", 7719, 0.76, 224),
        ("580.txt", "h200-141gb", 8710, 0.98, 605),
        ("580-gpu.csv", "h200-141gb", 8719, 0.98, 605.77),
        ("580-processes.csv", None, 8710, None, None),
        ("samples.csv", None, 30994, pytest.approx((0.99 + 0.99 + 1) / 3), None),
    ],
)
def test_memory_and_utilization_of_the_job_are_there(
    file, gpu, memory_mib, gpu_utilization, power_w
):
    seen = read_nvidia_smi(printed(file))
    assert (seen.memory_mib, seen.gpu_utilization) == (memory_mib, gpu_utilization)
    assert (seen.gpu, seen.power_w) == (gpu, power_w)


def test_lines_after_a_time_stamp_or_a_margin_count_too():
    text = "\n".join(f"2024-06-25T18:45:27.0954Z {line}" for line in printed("580.txt").split("\n"))
    assert read_nvidia_smi(text) == read_nvidia_smi(printed("580.txt"))


SECOND = "|    0   N/A  N/A             562      C   python3                 710MiB |\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "No GPU"),
        ("epoch 3: loss 0.2", "No GPU"),
        (printed("580.txt") + SECOND, "2 jobs"),
        (printed("580.txt") + SECOND.replace("|    0", "|    1"), "2 GPUs"),
        (printed("580.txt").replace("N/A  N/A  ", "  1    0  "), "MIG"),
        ("|" * 300_000, "characters"),
        ('utilization.gpu [%]\n"' + "x" * 150_000, "CSV"),
    ],
)
def test_what_does_not_show_one_job_alone_gets_a_sentence(text, problem):
    with pytest.raises(InvalidInput, match=problem):
        read_nvidia_smi(text)


def test_processes_of_a_screen_and_of_mps_itself_are_no_jobs():
    server = SECOND.replace("python3", "nvidia-cuda-mps-server")
    screen = SECOND.replace("  C  ", "  G  ")
    assert read_nvidia_smi(printed("580.txt") + server + screen).memory_mib == 8710


@given(st.text() | st.text(alphabet="|0123456789 MiBCN/A%On:.,[]\n"))
def test_any_text_is_a_job_or_gets_a_sentence(text):
    try:
        seen = read_nvidia_smi(text)
    except InvalidInput:
        return
    assert seen.memory_mib is None or seen.memory_mib >= 0
