"""Feeds damaged files, words and driver's answers to every reader, which says so, or reads them.

    python benchmarks/fuzz_readers.py [TARGET...] --runs 60000 [--seconds 110] [--seed 1] [--out F]
    python benchmarks/fuzz_readers.py --table FILE

Where atheris is installed, inputs are guided by the branches that they reach in `advisor`; else
they are drawn by a seed. An input is a program that damages a true document: values replaced by odd
ones, keys lost or renamed, parts nested or swapped, bytes changed; or it is the document itself.
Any exception but an `AdvisorError` is a finding: what, where, and the input that led there.
"""

import argparse
import atexit
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
GPU = "h200-141gb"
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.0, -0.0, 1e308, -1e308,
    1e-320, 5e-324, "", "\0", "../../etc/passwd", "a" * 300, "é\u202e\ud800", "NaN", "1", [], {},
    [[]], [None], {"": {}}, [0] * 60, "naive", "mps=50,50", "cpu", "mig=3g.71gb@4[1]", "-", "1:2",
)  # fmt: skip


class Dice:
    """Choices read from bytes; all are 0 at the end of them."""

    def __init__(self, data: bytes) -> None:
        self.left = memoryview(data)

    def below(self, most: int) -> int:
        word, self.left = bytes(self.left[:2]), self.left[2:]
        return int.from_bytes(word.ljust(2, b"\0"), "little") % max(1, most)

    def one(self, choices: Any) -> Any:
        return choices[self.below(len(choices))]

    def rest(self) -> bytes:
        found, self.left = bytes(self.left), self.left[:0]
        return found


def damaged(document: Any, dice: Dice) -> Any:
    """`document` with up to seven things wrong with it."""
    document = copy.deepcopy(document)
    for _ in range(1 + dice.below(7)):
        places = list(_places(document))
        if not places:
            break
        where, key = dice.one(places)
        match dice.below(8):
            case 0 | 1 | 2:
                where[key] = copy.deepcopy(dice.one(ODD))
            case 3:
                del where[key]
            case 4:
                other, at = dice.one(places)
                if isinstance(other, dict) and at in other:
                    where[key] = copy.deepcopy(other[at])
            case 5:
                where[key] = [where[key]] if dice.below(2) else {"x": where[key]}
            case 6 if isinstance(where, dict):
                where[dice.rest()[:8].decode("latin-1")] = where.pop(key)
            case 7 if isinstance(where[key], float):
                where[key] = where[key] * dice.one((-1, 0, 0.5, 2, 1e-9, 1e9, 1e300))
    return document


def _places(document: Any, depth: int = 0) -> Any:
    items = document.items() if isinstance(document, dict) else (
        enumerate(document) if isinstance(document, list) else ())  # fmt: skip
    for key, value in list(items)[:60]:
        yield document, key
        if depth < 6:
            yield from _places(value, depth + 1)


def json_text(document: Any, dice: Dice) -> bytes:
    """`document` damaged, as JSON; some keys twice, some bytes wrong."""
    text = json.dumps(damaged(document, dice), allow_nan=True).encode("utf-8", "surrogatepass")
    return scratched(text, dice) if dice.below(6) == 0 else text


def scratched(text: bytes, dice: Dice) -> bytes:
    """`text` with some bytes cut, put in, or changed."""
    for _ in range(1 + dice.below(4)):
        at = dice.below(len(text) + 1)
        piece = (b"", b"NaN", b"Infinity", b'{"', b"]", b"\xff", b"\0", b"1e999", text[:20])
        text = text[:at] + dice.one(piece) + text[at + dice.below(9) :]
    return text


def scratch() -> Path:
    """A folder in memory, where that can be had; it goes with this process."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class Reader:
    """One reader, with true documents to damage.

    Args:
        read: Takes a file.
        seeds: True documents: values of JSON, or bytes.
        suffix: Of the file's name.
    """

    def __init__(self, read: Callable[[Path], object], *seeds: Any, suffix: str = ".json") -> None:
        self.read, self.seeds, self.suffix = read, seeds, suffix
        self.folder = scratch()
        self.number = 0

    def text(self, dice: Dice) -> bytes:
        kind = dice.below(16)
        seed = dice.one(self.seeds)
        if kind == 0:
            return dice.rest()
        if isinstance(seed, bytes):
            return scratched(seed, dice)
        return json_text(seed, dice)

    def try_one(self, dice: Dice) -> bytes:
        """What was read; raises what reading it raises."""
        text = self.text(dice)
        self.number += 1
        path = self.folder / f"{self.number % 2}{self.suffix}"
        path.write_bytes(text)
        os.utime(path, ns=(self.number, self.number))  # readers remember files that do not change
        self.last = text
        self.read(path)
        return text


def readers() -> dict[str, Callable[[], Reader]]:
    """Each target's maker, by its name; nothing is imported before it is made."""
    return {name[3:].replace("_", "-"): maker for name, maker in globals().items()
            if name.startswith("of_")}  # fmt: skip


def _json_of(*paths: str) -> list[Any]:
    return [json.loads((ROOT / path).read_text()) for path in paths]


def _first_line(path: str) -> bytes:
    with (ROOT / path).open("rb") as lines:
        return lines.readline()


def _stock(name: str) -> Any:
    from advisor.workload.store import load_profile

    stock = load_profile("mlp-toy-bs128", GPU)
    if name != "stock":
        from advisor.errors import InvalidInput

        raise InvalidInput(f"no profile {name[:40]!r}")
    return stock


def of_profiles() -> Reader:
    from advisor.workload.store import read_profile

    minimal = {"schema": 1, "workload": "my-job", "gpu": GPU, "batch_size": 64, "step_s": 0.12,
               "memory_mib": 5300, "power_w": 190, "gpu_utilization": 0.83,
               "memory_utilization": 0.41}  # fmt: skip
    small = _json_of(f"profiles/{GPU}/mlp-toy-bs128.json")
    return Reader(read_profile, *small, minimal)


def of_runs() -> Reader:
    from advisor.workload.stored_runs import read_runs

    runs = (f"profiles/{GPU}/runs/campaign-0.jsonl", f"profiles/{GPU}/runs/completion-0.jsonl")
    return Reader(read_runs, *(json.loads(_first_line(each)) for each in runs), suffix=".jsonl")


def of_plans() -> Reader:
    from advisor.launch.plan_file import read_plan
    from advisor.validate.executed_plan import saved_plan

    plan = _json_of("benchmarks/run-check/plan-mps.json")[0]
    advice = copy.deepcopy(plan) | {"objective": "makespan", "epochs": [1.0] * 3}

    def read(path: Path) -> object:
        saved_plan(path, 1)
        return read_plan(path)

    return Reader(read, plan, advice)


def of_plans_that_run() -> Reader:
    from advisor.measure.execution.execution_plan import read_execution_plan

    plan = _json_of("benchmarks/run-check/plan-mps.json")[0]
    phases = copy.deepcopy(plan)
    phases["plans"][0]["sharing"] = "mps=50,50[1,2];serial[3]"
    script = {"command": ["python", "a.py"], "folder": "/x", "environment": {"A": "b"}}
    phases["plans"][0]["jobs"][0]["script"] = script
    return Reader(read_execution_plan, plan, phases)


def of_run_states() -> Reader:
    from advisor.measure.execution.run_folder import RunFolder
    from advisor.measure.process.progress_file import progress_in, record_in

    state = {"schema": 1, "id": "20260101T000000-abcdef", "gpu": GPU, "device": "GPU-1",
             "boot": "b", "date": "2026-01-01", "command": "advisor run", "pipes": "/tmp/x",
             "most_steps": None, "stage": 0, "over": False,
             "jobs": [{"number": 1, "phase": "running", "keeper": 5, "born": 7, "began_s": 1.5,
                       "ended_s": None, "fate": None, "detail": None, "steps": None}]}  # fmt: skip
    progress = {"steps": 5, "at": 1.5, "memory": {"allocated_mib": 1.0, "reserved_mib": 2.0},
                "versions": {"torch": "2"}, "sms": 132}  # fmt: skip

    def read(path: Path) -> object:
        progress_in(path)
        record_in(path)
        path.replace(path.with_name("state.json"))
        return RunFolder(path.parent).state()

    return Reader(read, state, progress)


def of_job_files() -> Reader:
    from advisor.workload.job_file import read_jobs

    text = (
        b'[[job]]\nprofile = "stock"\ncopies = 2\nepochs = 3.5\nvalidation_s = 40\nuser = "ada"\n'
        b'protect = 0.1\ncommand = ["python", "a.py"]\nfolder = "x"\nenvironment = {SEED = "3"}\n'
        b'[[job]]\nprofile = "stock"\nisolated = true\ndeadline_s = 60.0\nbatches = [64]\n'
    )
    return Reader(lambda path: read_jobs(path, _stock), text, suffix=".toml")


def of_arrivals() -> Reader:
    from advisor.workload.job_file import read_arrivals

    text = b"arrival_s,job,epochs\n0,stock,5\n12.5,stock,3\n"
    return Reader(lambda path: read_arrivals(path, _stock), text, suffix=".csv")


def of_run_lists() -> Reader:
    from advisor.measure.shared.run_list_file import read_plans

    listed = {"schema": 1, "gpu": GPU, "plans": [
        {"id": "a", "sharing": "mps=43,57", "purpose": "drawn", "repeats": None,
         "workloads": ["mlp-toy-bs128", "mlp-toy-bs128"]},
        {"id": "b", "sharing": "naive[1];mps[2,3]", "purpose": "completion", "steps": [9, 8, 7],
         "workloads": ["mlp-toy-bs128"] * 3}]}  # fmt: skip
    return Reader(lambda path: read_plans(path, GPU), listed,
                  *_json_of("benchmarks/run-check/plan-mps.json"))  # fmt: skip


def of_campaign_plans() -> Reader:
    from advisor.measure.campaign.campaign_file import read_campaign

    plans = [f"benchmarks/campaign-{each}/plan.toml" for each in ("third", "h100", "priority")]
    workloads = b'"../workloads.toml"', b'"workloads.toml"'  # which lies beside it here
    texts = ((ROOT / each).read_bytes().replace(*workloads) for each in plans)
    reader = Reader(read_campaign, *texts, suffix=".toml")
    shutil.copy(ROOT / "benchmarks/workloads.toml", reader.folder / "workloads.toml")
    return reader


def of_traces() -> Reader:
    import gzip

    from advisor.measure.solo.chrome_trace import steps_of_trace
    from advisor.measure.solo.profiling_verbs import median_step
    from advisor.measure.solo.trace_events import MARK
    from advisor.measure.solo.traced_step import sm_limits
    from advisor.workload.documents import read_json

    packed = (ROOT / "tests/measure/solo/recorded/mlp-toy-bs128.json.gz").read_bytes()
    recorded = json.loads(gzip.decompress(packed))
    events = [each for each in recorded["traceEvents"] if each.get("ph") == "X"]
    marks = [each for each in events if str(each["name"]).startswith(MARK)]
    names = list(dict.fromkeys(str(each["name"]).removeprefix(MARK) for each in marks))
    ends = [each["ts"] for each in sorted(marks, key=lambda each: each["ts"])]
    one = [each for each in events if ends[0] <= each["ts"] < ends[len(names)]]
    step = {"traceEvents": one}
    limits = sm_limits("9.0")
    return Reader(lambda path: median_step(steps_of_trace(read_json(path), names, limits)), step)


def of_calibrations() -> Reader:
    from advisor.workload.store import read_calibration

    return Reader(read_calibration, *_json_of("tests/measure/calibrate/h200.json"))


def of_journals() -> Reader:
    os.environ["XDG_DATA_HOME"] = str(scratch())
    from advisor.launch.journal import journal, taken_over
    from advisor.launch.machine_changes import ChangedMig
    from advisor.measure.process.journal_files import journal_file

    with journal("GPU-1", "advisor run") as log:
        log.intend(ChangedMig(before=(), ours=()))
        text = journal_file("GPU-1").read_bytes()

    def read(path: Path) -> object:
        with taken_over(path) as found:
            return found and (found.owner, found.left, found.damaged)

    return Reader(read, text, suffix=".jsonl")


def of_gpu_files() -> Reader:
    from dataclasses import asdict

    from advisor.hardware.catalogue import gpu, read_gpu

    described = {"schema": 1} | asdict(gpu(GPU)) | {"key": "1"}
    described.pop("rates", None)
    return Reader(read_gpu, described, described | {"key": "0"})


class Words(Reader):
    """Words of ways to share, which are no file."""

    def try_one(self, dice: Dice) -> bytes:
        from advisor.sharing import parse_sharing
        from advisor.sharing.traversal import check_count, groups

        text = scratched(dice.one(self.seeds), dice)
        self.last = text
        sharing = parse_sharing(text.decode("latin-1"))
        check_count(sharing, 3)
        groups(sharing, 3)
        return text


def of_sharing_words() -> Reader:
    return Words(lambda _: None, b"mps=43,57", b"mps=50,100/priority=0,1", b"naive[1,2];mps[3]",
                 b"mig=4g.71gb@0[1]+3g.71gb@4[2,3]/mps=50,50", b"mig=3g.71gb,4g.71gb@0,1g.18gb",
                 b"mig=7g.141gb@0/ci=3c[1]+4c[2,3]")  # fmt: skip


class Answers(Reader):
    """What NVML answers: any code, any number, any text."""

    def try_one(self, dice: Dice) -> bytes:
        import pynvml

        from advisor.hardware.live_gpu import live_gpus
        from advisor.hardware.mig_offer import mig_profiles
        from tests.hardware.nvml import FUNCTIONS, FakeGpu, FakeLibrary

        names = [name for name in FUNCTIONS if name != "nvmlInitWithFlags"]
        codes = [getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")]
        refused = {dice.one(names): dice.one(codes) for _ in range(dice.below(4))}
        sizes = (0, 1, -1, 2**31 - 1, 143771, 9)
        gpu = FakeGpu(
            product=dice.one(("NVIDIA H200", "NVIDIA New 1GB", "", "\xe9" * 20, "NVIDIA A100")),
            mig=dice.one((None, (0, 0), (1, 1), (2, 255))), gpm=bool(dice.below(2)),
            processes={dice.one((1, 0, 2**32 - 1)): dice.one((None, 0, 2**63))},
            refuses=refused, capability=(dice.one(sizes[:2]) + 8, dice.below(99)),
            cores=dice.one((None, *sizes)), memory_mib=dice.one((0, 1, 143771, 2**40)),
            compute_mode=dice.one((0, 3, 4, 255)), default_limit_mw=dice.one((0, 1, 700_000)),
            profiles={dice.below(20): {
                "id": dice.below(30), "sliceCount": dice.one((0, 1, 7, 255)),
                "instanceCount": dice.one((0, 1, 99)), "multiprocessorCount": dice.one((0, 16)),
                "memorySizeMB": dice.one((0, 18000, 2**40)), "isP2pSupported": 0,
                "places": [(dice.below(9), dice.below(9))] * dice.below(3)}},
        )  # fmt: skip
        self.last = repr(gpu).encode()
        pynvml.nvmlLib = FakeLibrary(gpu)
        pynvml._nvmlGetFunctionPointer_cache = {}
        live_gpus()
        mig_profiles(0)
        return self.last


def of_nvml_answers() -> Reader:
    return Answers(lambda _: None, b"")


def instrumented() -> Any:
    """Has what its block imports of the advisor tell atheris, where that is, of its branches."""
    try:
        import atheris
    except ImportError:
        return nullcontext()
    return atheris.instrument_imports(include=["advisor"])


def fuzz(name: str, runs: int, seconds: float, seed: int) -> None:
    """Try `runs` inputs of one target in this process; prints findings as JSON, a line each."""
    os.environ["XDG_DATA_HOME"] = str(scratch())  # GPUs that drivers describe are kept there
    with instrumented():
        from advisor.errors import AdvisorError

        reader = readers()[name]()
        for data in (b"", bytes(range(64)), b"\x11" * 64):
            with suppress(Exception):
                reader.try_one(Dice(data))  # which imports what else it needs
    seen: set[tuple[str, str]] = set()
    tried = {"inputs": 0, "read": 0}

    def one(data: bytes) -> None:
        tried["inputs"] += 1
        try:
            reader.try_one(Dice(data))
            tried["read"] += 1
        except AdvisorError:
            pass
        except Exception as error:
            frames = [each for each in traceback.extract_tb(error.__traceback__)
                      if "advisor/" in each.filename]  # fmt: skip
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
            if (key := (type(error).__name__, place)) not in seen:
                seen.add(key)
                said = {"target": name, "error": key[0], "place": place, "words": str(error)[:200],
                        "input": reader.last[:2000].decode("latin-1")}  # fmt: skip
                print("FINDING " + json.dumps(said), flush=True)
        if tried["inputs"] % 1000 == 0 or tried["inputs"] >= runs:
            print("TRIED " + json.dumps(tried), flush=True)

    try:
        import atheris
    except ImportError:
        drawn = random.Random(f"{name} {seed}")
        while tried["inputs"] < runs:
            one(drawn.randbytes(8 + drawn.randrange(200)))
        return
    options = [f"-runs={runs}", f"-max_total_time={int(seconds)}", "-max_len=256", f"-seed={seed}",
               "-print_final_stats=1", "-verbosity=1", "-rss_limit_mb=0"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def in_slices(asked: argparse.Namespace) -> None:
    """Each target in a process of its own, after another."""
    for name in asked.targets or readers():
        words = [sys.executable, __file__, "--one", name, "--runs", str(asked.runs)]
        words += ["--seconds", str(asked.seconds), "--seed", str(asked.seed)]
        began = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        lines = done.stdout.splitlines()
        tried = [json.loads(line[6:]) for line in lines if line.startswith("TRIED ")]
        found = [json.loads(line[8:]) for line in lines if line.startswith("FINDING ")]
        cover = [line for line in done.stderr.splitlines() if " cov: " in line]
        result = {"target": name, "findings": found, "branches": _reached(cover),
                  "seconds": round(time.monotonic() - began)}  # fmt: skip
        result |= tried[-1] if tried else {"inputs": 0, "read": 0, "why": done.stderr[-500:]}
        print(json.dumps(result | {"findings": len(found)}), *map(json.dumps, found), sep="\n  ")
        if asked.out:
            with asked.out.open("a") as out:
                out.write(json.dumps(result) + "\n")


def _reached(lines: list[str]) -> int | None:
    """Branches, as the last of libFuzzer's lines says."""
    return int(lines[-1].split(" cov: ")[1].split()[0]) if lines else None


def table(file: Path) -> str:
    lines = ["| reader | inputs | of them read | minutes at once | branches | other exceptions |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    found = [json.loads(line) for line in file.read_text().splitlines()]
    for name in dict.fromkeys(each["target"] for each in found):
        own = [each for each in found if each["target"] == name]
        wrong = {(one["error"], one["place"]) for each in own for one in each["findings"]}
        said = ", ".join(f"{error} at {place}" for error, place in sorted(wrong)) or "none"
        inputs, read = (sum(each[key] for each in own) for key in ("inputs", "read"))
        reached = max((each["branches"] or 0) for each in own) or "-"
        longest = max(each.get("seconds", 0) for each in own) // 60 or "-"
        lines.append(f"| {name} | {inputs:,} | {read:,} | {longest} | {reached} | {said} |")
    lines.append(f"| all | {sum(each['inputs'] for each in found):,} | | | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Feeds damaged input to every reader.")
    parser.add_argument("targets", nargs="*", help="default: all")
    parser.add_argument("--runs", type=int, default=10_000, help="inputs of each target")
    parser.add_argument("--seconds", type=float, default=110.0, help="of each target at most")
    parser.add_argument("--seed", type=int, default=1, help="another one tries other inputs")
    parser.add_argument("--out", type=Path, help="JSON Lines file to which results are added")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.table:
        print(table(asked.table))
    elif asked.one:
        fuzz(asked.one, asked.runs, asked.seconds, asked.seed)
    else:
        in_slices(asked)


if __name__ == "__main__":
    main()
