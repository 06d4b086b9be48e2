"""Which line of what a program printed tells of its end."""

import pytest

from advisor.measure.process.printed_output import shown_lines, telling_line

TORCHRUN = """step 5
[rank0]: Traceback (most recent call last):
[rank0]: ValueError: my data is broken
E1124 11:00 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
ACCELERATE = """ValueError: my data is broken
subprocess.CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status 1.
"""
CUDA = """RuntimeError: CUDA error: an illegal memory access was encountered
For debugging consider passing CUDA_LAUNCH_BLOCKING=1; kernel errors may come late.
"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (TORCHRUN, "[rank0]: ValueError: my data is broken"),
        (ACCELERATE, "ValueError: my data is broken"),
        (CUDA, "RuntimeError: CUDA error: an illegal memory access was encountered"),
        ("train.py: error: no such option --lr\nusage: train.py\n", "train.py: error: no such"),
        ("loading\nKilled\n\n", "Killed"),
        ("  5%| 1.0it/s\r 10%| 2.0it/s\r", "10%| 2.0it/s"),
        ("", ""),
        ("\r\n\n", ""),
    ],
)
def test_of_a_failed_program_the_line_that_says_why_is_told(printed, line):
    assert telling_line(printed).startswith(line)


def test_a_line_that_fills_the_screen_is_told_in_part():
    assert len(telling_line("x" * 100_000)) == 300


def test_what_a_progress_bar_wrote_over_is_not_shown():
    assert shown_lines("start\n 1%\r 2%\r 3%\ndone\r\n") == ["start", "3%", "done"]
