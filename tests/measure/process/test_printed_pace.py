"""Paces that programs print: rates and times, and those that were taken for the other."""

import pytest

from advisor.errors import InvalidInput
from advisor.measure.printed_pace import PrintedPace
from advisor.workload.spec import Script

BOLD, MS = "\x1b[1m{}\x1b[0m", "(?P<ms>[0-9.]+)ms/step"
TQDM = {"seconds_per_step": "([0-9.]+)s/it", "throughput": "([0-9.]+)it/s"}
RATE, TIME = "--throughput", "--seconds-per-step"


def pace(line, every_s, batch=1, count=20, **patterns):
    """The pace of a program that prints a line every `every_s`; ``{}`` is the line's number."""
    printed = PrintedPace(Script(command=("a",), folder="/", **patterns), batch)
    for number in range(count):
        printed.read(line.format(number).encode(), 100 + number * every_s)
    return printed


@pytest.mark.parametrize(
    ("line", "every_s", "batch", "patterns", "step_s"),
    [
        ("400 images/s\n", 0.5, 4, {"throughput": "([0-9]+) images"}, 0.01),
        ("seconds: 0.302, loss 9\n", 0.3, 1, {"seconds_per_step": "seconds: ([0-9.]+)"}, 0.302),
        (f"\r{BOLD} 0s \x1b[32m20ms\x1b[0m/step", 0.06, 1, {"seconds_per_step": MS}, 0.02),
        ("\r 5%| {}/9 [00:05<01:31, 1.31s/it]", 1.31, 1, TQDM, 1.31),
        ("\r 5%| {}/9 [00:05<01:31, 2.00it/s]", 0.5, 1, TQDM, 0.5),
        ("{}: time 12, 40 samples/sec: 40\n", 1.0, 1, {"throughput": "samples/sec: (.*)"}, 0.025),
    ],
)
def test_a_pace_is_a_rate_or_the_time_of_a_step(line, every_s, batch, patterns, step_s):
    printed = pace(line, every_s, batch, **patterns)
    printed.check()
    assert printed.step_s == pytest.approx(step_s)
    assert printed.steps == pytest.approx((printed.figures - 1) * every_s / step_s)
    ends = printed.ends_between(100.0 + 3 * every_s, 100.0 + 9 * every_s)
    assert len(ends) == pytest.approx(6 * every_s / step_s, abs=1)


@pytest.mark.parametrize(
    ("line", "every_s", "patterns", "fits"),
    [
        ("\r{}/9 20ms/step", 0.06, {"throughput": "([0-9]+)ms"}, "(?P<ms>...)"),
        ("\r{}/9 20ms/step", 0.06, {"seconds_per_step": "([0-9]+)ms"}, "(?P<ms>...)"),
        ("seconds: 3.1\n", 3.1, {"throughput": "seconds: ([0-9.]+)"}, TIME),
        ("step_time_ms=12\n", 0.012, {"throughput": "ms=([0-9.]+)"}, "(?P<ms>...)"),
        ("5.3 it/s\n", 5.3, {"seconds_per_step": "([0-9.]+) it"}, RATE),
        # Nothing but their times says what these are.
        ("{},0.302,9.1\n", 0.3, {"throughput": ",([0-9.]+),"}, TIME),
        ("{},20,9.1\n", 0.02, {"throughput": ",([0-9.]+),"}, "(?P<ms>...)"),
        ("{},40,9.1\n", 0.025, {"seconds_per_step": ",([0-9.]+),"}, RATE),
        ("{},4,9.1\n", 0.02, {"throughput": ",([0-9.]+),"}, "--batch-size"),
    ],
)
def test_a_figure_that_contradicts_its_text_or_its_times_is_refused(line, every_s, patterns, fits):
    with pytest.raises(InvalidInput) as refusal:
        pace(line, every_s, **patterns).check()
    assert fits in str(refusal.value)


def printed_every(step_s, steps, value):
    """The pace of a program that prints `value` of the time of `steps` steps, which changes."""
    printed = PrintedPace(Script(command=("a",), folder="/", throughput="([0-9.]+)"), 1)
    now_s = 0.0
    for number in range(20):
        seconds = steps * step_s * (1 + 0.05 * (number % 3))
        now_s += seconds
        printed.read(f"{value(seconds / steps):.4f}\n".encode(), now_s)
    return printed


def test_a_time_that_changes_with_the_time_between_lines_is_no_rate():
    with pytest.raises(InvalidInput, match=TIME):
        printed_every(3.1, 1, lambda step_s: step_s).check()
    printed_every(0.1, 100, lambda step_s: 1 / step_s).check()  # as many a second as seconds


def test_a_bar_that_prints_twice_a_step_or_a_program_that_prints_in_blocks_is_no_contradiction():
    bar = PrintedPace(Script(command=("a",), folder="/", throughput="([0-9]+)it/s"), 1)
    for number in range(20):
        bar.read(b"\r10it/s", 0.1 * number)
        bar.read(b"\r10it/s", 0.1 * number + 0.001)
    bar.check()
    block = PrintedPace(Script(command=("a",), folder="/", throughput="([0-9]+) a s"), 1)
    for number in range(20):
        block.read(b"100 a s\n" * 100, float(number))
    block.check()
    assert block.steps == pytest.approx(1900)
