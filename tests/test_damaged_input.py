"""Every reader reads a damaged file or refuses it with an error of ours."""

import copy
import json
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.hardware.gpus import read_gpu
from advisor.launch.plan_file import read_plan
from advisor.measure.planned_runs import read_campaign
from advisor.sharing import parse_sharing
from advisor.workload.arrivals import read_arrivals
from advisor.workload.job import read_jobs
from advisor.workload.store import load_profile, read_calibration, read_profile, read_runs

ROOT = Path(__file__).parents[1]
GPU = "h200-141gb"
LONG = "a" * 300
ODD = (
    None,
    True,
    0,
    -1,
    2**64,
    10**400,
    1e308,
    5e-324,
    "",
    "\0",
    "../../etc/passwd",
    LONG,
    "é\u202e\ud800",
    "NaN",
    [],
    {},
    [None],
    [0] * 60,
    "naive",
    "mps=50,50",
    "-",
    "1:2",
)
PIECES = (b"", b"NaN", b"Infinity", b'{"', b"]", b"\xff", b"\0", b"1e999")


def find(name):
    if name != "stock":
        raise AdvisorError(name[:40])
    return load_profile("mlp-toy-bs128", GPU)


def read_sharing(path):
    return parse_sharing(path.read_text("latin-1"))


@cache
def documents(kind):
    """A reader, the suffix of its files, and a true document: a value of JSON, or bytes."""
    with (ROOT / f"profiles/{GPU}/runs/campaign-0.jsonl").open("rb") as lines:
        run = json.loads(lines.readline())
    plan = {
        "objective": "makespan",
        "gpu": GPU,
        "epochs": [1],
        "plans": [{"rank": 1, "sharing": "mps=50,50", "jobs": [{"job": "mlp-toy-bs128"}] * 2}],
    }
    host = {"gpu": GPU, "host": [{"cores": 1, "check_s": 1.0}]}
    described = {"schema": 1, "key": "1", "sms": 132, "memory_mib": 143771}
    profile = json.loads((ROOT / f"profiles/{GPU}/mlp-toy-bs128.json").read_text())
    jobs = (
        b'[[job]]\nprofile = "stock"\ncopies = 2\nepochs = 3.5\nprotect = 0.1\n'
        b'command = ["python", "a.py"]\nenvironment = {SEED = "3"}\n'
    )
    campaign = (ROOT / "advisor/workload/templates/campaign.toml").read_bytes()
    return {
        "profile": (read_profile, ".json", profile),
        "runs": (read_runs, ".jsonl", run),
        "plan": (read_plan, ".json", plan),
        "calibration": (read_calibration, ".json", host),
        "gpu": (read_gpu, ".json", described),
        "jobs": (lambda path: read_jobs(path, find), ".toml", jobs),
        "arrivals": (lambda path: read_arrivals(path, find), ".csv", b"arrival_s,job\n0,stock\n"),
        "campaign": (read_campaign, ".toml", campaign),
        "sharing": (read_sharing, ".txt", b"mig=4g.71gb@0[1]+3g.71gb@4[2,3]/mps=50,50"),
    }[kind]


KINDS = ("profile", "runs", "plan", "calibration", "gpu", "jobs", "arrivals", "campaign", "sharing")


def places(value, depth=0):
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    for key, inner in list(items)[:60]:
        yield value, key
        if depth < 6:
            yield from places(inner, depth + 1)


def damaged(document, data):
    """`document` with odd values, lost keys, and bytes changed."""
    if not isinstance(document, bytes):
        document = copy.deepcopy(document)
        for _ in range(data.draw(st.integers(0, 4))):
            where, key = data.draw(st.sampled_from(list(places(document)) or [({"a": 1}, "a")]))
            change = data.draw(st.sampled_from(["odd", "scaled", "lost"]))
            if change == "odd":
                where[key] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
            elif change == "lost":
                del where[key]
            elif isinstance(where[key], float):
                where[key] *= data.draw(st.sampled_from([0.001, 10, 1e6]))
        document = json.dumps(document).encode("utf-8", "surrogatepass")
        if data.draw(st.booleans()):
            return document
    at = data.draw(st.integers(0, len(document)))
    lost = data.draw(st.integers(0, 9))
    return document[:at] + data.draw(st.sampled_from(PIECES)) + document[at + lost :]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(kind, data, tmp_path_factory):
    read, suffix, document = documents(kind)
    path = tmp_path_factory.mktemp("damaged") / f"file{suffix}"
    path.write_bytes(damaged(document, data))
    with suppress(AdvisorError):
        read(path)
