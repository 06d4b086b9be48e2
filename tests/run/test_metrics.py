"""``advisor run --metrics``: a run as Prometheus scrapes it."""

import re
import socket
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.run.watch import parse_address, serving
from advisor.run.watched import STATES
from advisor.workload.run import StepRange
from tests.run.machine import QUICK, Watcher, prepared, started
from tests.waiting import PATIENCE_S

_SAMPLE = re.compile(r"(advisor_\w+)\{(.*)\} (\S+)")


def scraped(url):
    """The samples at `url`: values by name and labels."""
    with urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return {
        (name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))): float(value)
        for name, labels, value in _SAMPLE.findall(text)
    }


def with_labels(samples, name, **labels):
    return {
        value
        for (own, own_labels), value in samples.items()
        if own == name and labels.items() <= dict(own_labels).items()
    }


def test_a_run_is_scraped_while_it_is_watched(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("advisor.run.watch.LOOK_S", 0.02)
    monkeypatch.chdir(tmp_path)
    folder = started(prepared("naive", QUICK, "exit 3"))
    with serving("0") as (url, metrics):
        assert scraped(url) == {}
        watcher = Watcher()
        watcher.shown = SimpleNamespace(extend=metrics.show)
        watcher.watch(folder)
        samples = scraped(url)
    run = {"run": folder.name, "workload": "job"}
    for number, ended in (("1", "done"), ("2", "failed")):
        for state in STATES:
            labels = run | {"job": number, "state": state}
            assert with_labels(samples, "advisor_run_job_state", **labels) == {state == ended}
    with pytest.raises(OSError, match="refused"):
        urlopen(url, timeout=PATIENCE_S)


def test_numbers_have_the_units_of_prometheus_and_those_not_known_are_left_out(tmp_path):
    known = {
        "done": 40,
        "steps": 100,
        "step_s": 0.02,
        "expected": StepRange(0.01, 0.02, 0.04),
        "left_s": 1.2,
        "held_mib": 512.0,
    }
    own = {"workload": SimpleNamespace(name="train"), "state": "running"}
    values = ((3, known), (4, dict.fromkeys(known)))
    jobs = [SimpleNamespace(number=number, **own, **each) for number, each in values]
    about = SimpleNamespace(device="GPU-0")
    run = SimpleNamespace(folder=tmp_path, about=about, jobs=jobs, now_w=300.0, left_s=1.2)
    with serving("127.0.0.1:0") as (url, metrics):
        metrics.show([run])
        samples = scraped(url)
    of_run, of_job = (
        {"power_watts": 300, "remaining_seconds": 1.2},
        {
            "steps_done_total": 40,
            "steps_planned": 100,
            "step_seconds": 0.02,
            "expected_step_seconds": 0.02,
            "expected_step_low_seconds": 0.01,
            "expected_step_high_seconds": 0.04,
            "remaining_seconds": 1.2,
            "memory_bytes": 512 * 2**20,
        },
    )
    assert {
        (name.removeprefix("advisor_run_"), dict(labels).get("job")): value
        for (name, labels), value in samples.items()
        if "state" not in name and dict(labels)["gpu"] == "GPU-0"
    } == {(name, None): value for name, value in of_run.items()} | {
        (f"job_{name}", "3"): value for name, value in of_job.items()
    }


def test_a_port_alone_is_of_this_host_and_what_is_no_free_port_is_refused():
    for text, address in (
        ("9400", ("127.0.0.1", 9400)),
        (":9400", ("0.0.0.0", 9400)),
        ("[::1]:80", ("::1", 80)),
        ("node-1:9400", ("node-1", 9400)),
    ):
        assert parse_address(text) == address
    for text in ("", "metrics", "host:", "host:http", "99999", "-1"):
        with pytest.raises(InvalidInput, match="HOST:PORT"):
            parse_address(text)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AdvisorError, match="Choose another port"), serving(str(port)):
            pass
