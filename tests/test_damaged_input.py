"""Whatever a file, a word or a driver says: it is read, or refused by an error of ours.

The damage is that of ``benchmarks/fuzz_readers.py``, which tries a million inputs.
"""

import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cli import main
from advisor.errors import AdvisorError

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import fuzz_readers

LONG = "a" * 300
TARGETS = sorted(set(fuzz_readers.readers()) - {"nvml-answers", "journals"})


@cache
def reader(target):
    return fuzz_readers.readers()[target]()


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=40)
@given(data=st.binary(min_size=4, max_size=80))
def test_a_damaged_file_is_read_or_refused_in_words(target, data):
    said = "it was read"
    try:
        reader(target).try_one(fuzz_readers.Dice(data))
    except AdvisorError as error:
        said = str(error)
    assert said.strip()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("calibrations", b'{"gpu": "x", "host": [{"cores": %d, "check_s": 1}]}' % 10**400),
        ("gpu-files", b'{"schema": 1, "key": "1", "sms": %d}' % 10**400),
        ("plans", b'{"objective": "makespan", "gpu": "h200-141gb", "epochs": [1], "plans": '
                  b'[{"rank": 1, "sharing": "naive", "jobs": []}]}'),
        ("plans", b'{"objective": "makespan", "gpu": "%s", "plans": [{"rank": 1}]}' % (b"a" * 300)),
        ("traces", b'{"traceEvents": null}'),
        ("traces", b'{"traceEvents": ["X"]}'),
    ],
)  # fmt: skip
def test_what_once_gave_a_traceback_is_refused_in_words(target, text):
    found = reader(target)
    path = found.folder / f"1{found.suffix}"
    path.write_bytes(text)
    with pytest.raises(AdvisorError):
        found.read(path)


@pytest.mark.parametrize(
    "words",
    [("recommend", LONG), ("recommend", f"{LONG}.py"), ("trials", f"{LONG}.py"),
     ("recommend", "--profiles", LONG), ("recommend", "--models", LONG),
     ("predict", LONG, "--gpu", "a100-40gb"), ("fit", "--profiles", LONG),
     ("init", "jobs", "--out", LONG)],
)  # fmt: skip
def test_a_name_that_no_file_can_have_is_refused_in_words(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (1, 2)
    assert LONG[:100] in capsys.readouterr().err.replace("\n", "")


def test_a_compute_mode_that_nobody_knows_is_not_known(monkeypatch):
    import pynvml

    from advisor.hardware import live_gpu
    from tests.hardware.nvml import FakeGpu, FakeLibrary

    monkeypatch.setattr(pynvml, "nvmlLib", FakeLibrary(FakeGpu(compute_mode=9)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    assert live_gpu.live_gpu(0).compute_mode is None
