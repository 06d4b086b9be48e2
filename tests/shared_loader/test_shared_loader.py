"""One loader for several jobs, on the CPU: the real package, each process a real one."""

import ctypes
import json
import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from time import sleep
from unittest.mock import Mock

import psutil
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

from advisor.errors import AdvisorError, InvalidInput
from advisor.shared_loader import FOLDER, JOBS, shared
from advisor.workload.catalogue import workload
from advisor.zoo import __main__ as zoo
from advisor.zoo.vision import import_timm
from tests.waiting import PATIENCE_S, until

BATCH = 4
FORK = get_context("fork")


class Numbered(Dataset):
    """Example i is a small image of its number, with that number as its label."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return torch.full((3, 8, 8), float(number)), torch.tensor(number)


class Broken(Numbered):
    def __getitem__(self, number):
        if number == 20:
            raise ValueError("image 20 is broken")
        return super().__getitem__(number)


class Slow(Numbered):
    def __getitem__(self, number):
        sleep(1.2 if number == 20 else 0)
        return super().__getitem__(number)


class Named(Numbered):
    def __getitem__(self, number):
        return dict(zip(("image", "label"), super().__getitem__(number), strict=True))


class OfSeveralSizes(Numbered):
    def __getitem__(self, number):
        return torch.zeros(3, 8, 8 + number // BATCH), torch.tensor(number)


class Stream(IterableDataset):
    def __iter__(self):
        return (torch.tensor([number]) for number in range(6 * BATCH))


def loader(data, **options):
    return DataLoader(data, **{"batch_size": BATCH, "num_workers": 1} | options)


def labels(batches):
    """Return the labels of every batch; its images have the same numbers."""
    seen = []
    for images, numbers in batches:
        assert (images == numbers[:, None, None, None]).all()
        seen += numbers.tolist()
    return seen


def two_epochs(make):
    batches = shared(make())
    return [len(batches), batches.batch_size, *(labels(batches) for _ in range(2))]


class Group:
    """Processes with one shared loader, and how each ended: exit code, or error and its kind."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self._ends = []

    def start(self, make, train=two_epochs, jobs=""):
        receiver, sender = FORK.Pipe(duplex=False)
        process = FORK.Process(target=self._run, args=(make, train, jobs, sender))
        process.start()
        sender.close()
        self.processes.append(process)
        self._ends.append(receiver)
        return psutil.Process(process.pid)

    def _run(self, make, train, jobs, sender):
        os.environ |= {FOLDER: str(self.folder), JOBS: jobs}
        torch.set_num_threads(1)
        try:
            sender.send(train(make))
        except Exception as error:
            sender.send((type(error), str(error)))

    def ends(self):
        """Return what each process sent, or its exit code."""
        for process, receiver in zip(self.processes, self._ends, strict=True):
            try:
                yield receiver.recv()
            except EOFError:
                process.join(PATIENCE_S)
                yield process.exitcode

    def started(self, name="served"):
        until((self.folder / name).exists)


@contextmanager
def group_in(folder):
    group = Group(folder)
    try:
        yield group
    finally:
        for process in group.processes:
            process.kill()
            process.join()


@pytest.fixture
def group():
    with TemporaryDirectory(dir="/tmp") as folder, group_in(Path(folder)) as made:
        yield made


def trained(group, make, jobs=2):
    """Start a producer and so many jobs; return how each ended, the producer first."""
    group.start(make, jobs=str(jobs))
    for _ in range(jobs):
        group.start(make)
    return [*group.ends()]


@pytest.mark.parametrize(
    ("examples", "options", "batches"),
    [
        (6 * BATCH, {}, 6),  # all
        (7 * BATCH, {}, 6),  # an odd last batch is lost
        (6 * BATCH + 1, {}, 6),  # so is a short one
        (7 * BATCH + 1, {"drop_last": True, "num_workers": 0}, 6),
    ],
)
def test_each_job_gets_each_batch_once_and_len_is_how_many(group, examples, options, batches):
    produced, *jobs = trained(group, lambda: loader(Numbered(examples), **options))
    everything = [*range(batches * BATCH)]
    assert produced == 0
    assert jobs == [[batches, BATCH, everything, everything]] * 2


def test_all_jobs_see_the_order_of_the_producer(group):
    _, first, second = trained(group, lambda: loader(Numbered(40), shuffle=True))
    assert first == second
    assert first[2] != first[3]
    assert [sorted(epoch) for epoch in first[2:]] == [[*range(40)]] * 2


def test_a_pass_over_data_without_a_length_ends_too(group):
    def train(make):
        batches = shared(make())
        with pytest.raises(TypeError, match="length"):
            len(batches)
        return [[int(batch[-1]) for (batch,) in batches] for _ in range(2)]

    def make():
        return loader(Stream(), collate_fn=lambda rows: (torch.stack(rows),))

    group.start(make, train, jobs="1")
    group.start(make, train)
    assert [*group.ends()] == [0, [[*range(3, 24, 4)]] * 2]


def test_no_process_listens_on_tcp_and_the_log_stays_as_it_was(group):
    def train(make):
        root = logging.getLogger()
        before = root.handlers[:], root.level
        next(batches := shared(make()))
        assert (root.handlers, root.level) == before
        until((group.folder / "seen").exists)
        return len(labels(batches))

    def make():
        return loader(Numbered(40))

    processes = [group.start(make, jobs="2"), group.start(make, train), group.start(make, train)]
    group.started()
    assert [each.net_connections("inet") for each in processes] == [[], [], []]
    assert {each.name for each in group.folder.glob("loader:*")}
    (group.folder / "seen").touch()
    assert [*group.ends()] == [0, 36, 36]


@pytest.mark.parametrize(
    ("end", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143), (signal.SIGINT, 130)],
)
def test_the_jobs_of_a_killed_producer_end_with_an_error_and_leave_no_worker(group, end, code):
    def train(make):
        for _ in shared(make()):
            (group.folder / "trains").touch()
        return "ended"

    def make():
        return loader(Numbered(10**9), num_workers=2)

    producer = group.start(make, jobs="2")
    group.start(make, train)
    group.start(make, train)
    group.started("trains")
    workers = producer.children()
    assert len(workers) == 2
    assert len([*group.folder.glob("pymp-*/*")]) == 2  # removed with the folder
    producer.send_signal(end)
    ended, *errors = group.ends()
    assert ended == code
    assert [kind for kind, _ in errors] == [AdvisorError] * 2
    assert all("The loader was ended." in text for _, text in errors)
    until(lambda: not any(each.is_running() for each in workers))


def test_a_producer_that_is_killed_before_the_jobs_came_ends_a_job_that_waits(group):
    def make():
        return loader(Numbered(40), num_workers=0)

    producer = group.start(make, jobs="2")
    group.start(make)
    group.started("loader:4445")
    producer.kill()
    assert [*group.ends()][1][0] is AdvisorError


def test_a_job_does_not_wait_for_a_producer_that_failed_before_it_held_its_lock(group):
    (group.folder / "ended").touch()  # as a script writes when its loader has ended
    group.start(lambda: loader(Numbered(40), num_workers=0))
    assert next(group.ends())[0] is AdvisorError


@pytest.mark.parametrize(
    ("data", "options", "word"),
    [
        (Broken(40), {}, "ValueError: image 20 is broken"),
        (Named(40), {}, "is a dict"),
        (OfSeveralSizes(40), {}, "Pad or crop"),
        (Numbered(BATCH), {}, "fewer than two full batches"),
    ],
)
def test_the_jobs_end_with_the_error_of_the_producer(group, data, options, word):
    produced, *jobs = trained(group, lambda: loader(data, **options))
    assert word in produced[1]
    assert [kind for kind, _ in jobs] == [AdvisorError] * 2
    assert all(word in text for _, text in jobs)


def test_jobs_end_with_a_remedy_if_the_engine_is_not_installed(group, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorsocket", None)
    group.start(lambda: loader(Numbered(40)), jobs="1")
    ((kind, text),) = group.ends()
    assert kind is AdvisorError
    assert "gpu-advisor[loader]" in text
    monkeypatch.delitem(sys.modules, "tensorsocket")
    group.start(lambda: loader(Numbered(40)))
    assert "gpu-advisor[loader]" in [*group.ends()][1][1]


def test_a_job_that_holds_the_interpreter_for_seconds_loses_nothing(group):
    def train(make):
        batches = shared(make())
        first = labels(islice(batches, 3))
        ctypes.PyDLL(None).usleep(2_500_000)  # no other thread of it runs
        return first + labels(batches)

    def make():
        return loader(Numbered(40 * BATCH))

    group.start(make, jobs="2")
    group.start(make, train)
    group.start(make, lambda make: labels(shared(make())))
    assert [*group.ends()] == [0, [*range(160)], [*range(160)]]


def test_jobs_wait_for_a_slow_producer(group):
    produced, *jobs = trained(group, lambda: loader(Slow(40)))
    assert produced == 0
    assert jobs == [[10, BATCH, [*range(40)], [*range(40)]]] * 2


def test_a_job_that_drops_batches_keeps_the_end_of_the_epoch(monkeypatch):
    from advisor.shared_loader import consumer

    monkeypatch.setattr(consumer, "dropping", True)
    job = consumer._Consumer.__new__(consumer._Consumer)
    job.buffer = Queue(2)
    for each in (1, StopIteration(), 2, 3, 4):
        job._put(each)
    kept = [job.buffer.get_nowait() for _ in range(2)]
    assert sum(isinstance(each, StopIteration) for each in kept) == 1


@pytest.mark.parametrize("lost", ["message", "answer"])
def test_a_first_message_or_answer_that_is_lost_is_sent_again(group, lost):
    def train(make):
        from advisor.shared_loader.consumer import _Consumer

        take, left = _Consumer._take, [True]

        def _take(consumer, message, stream):
            loses = "-1" in message and left and left.pop()
            socket = consumer.ack_socket
            if loses:
                consumer.ack_socket = Mock()
            if not loses or lost == "answer":
                take(consumer, message, stream)
            consumer.ack_socket = socket

        _Consumer._take = _take
        return two_epochs(make)

    def make():
        return loader(Numbered(40))

    group.start(make, jobs="2")
    group.start(make, train)
    group.start(make)
    assert [*group.ends()] == [0, *[[10, BATCH, [*range(40)], [*range(40)]]] * 2]


def test_jobs_go_on_when_another_dies_or_ends_early(group):
    def dies(make):
        for _ in islice(shared(make()), 5):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    def make():
        return loader(Numbered(40 * BATCH))

    group.start(make, jobs="3")
    group.start(make)
    group.start(make, dies)
    group.start(make, lambda make: labels(shared(make())))
    whole = [*range(160)]
    assert [*group.ends()] == [0, [40, BATCH, whole, whole], -signal.SIGKILL, whole]


def test_a_job_of_another_batch_size_and_a_late_one_end_with_an_error(group):
    def make():
        return loader(Numbered(40))

    def train(make):
        batches = shared(make())
        until((group.folder / "late").exists)
        return len(labels(batches))

    group.start(make, jobs="2")
    group.start(make, train)
    group.start(lambda: loader(Numbered(40), batch_size=5))
    group.started()
    group.start(make)
    late = group._ends[-1].recv()
    (group.folder / "late").touch()
    code, trains, other = [end for end, _ in zip(group.ends(), range(3), strict=False)]
    assert (code, trains) == (0, 40)
    assert other[0] is InvalidInput
    assert late[0] is AdvisorError


def test_the_producer_does_not_wait_for_a_job_that_ended_before_it_came(group):
    def make():
        return loader(Numbered(40))

    def waits(make):
        shared(make())

    group.start(make, jobs="4")
    group.start(make)
    group.start(make)
    came = group.start(make, waits)
    until(lambda: len([*group.folder.glob("*-*-*")]) == 3)
    came.kill()  # it had come
    (group.folder / "gone-3").touch()
    (group.folder / "gone-4").touch()
    whole = [10, BATCH, [*range(40)], [*range(40)]]
    assert [*group.ends()] == [0, whole, whole, -signal.SIGKILL]


def test_a_second_producer_does_not_start_in_the_same_folder(group):
    group.start(lambda: loader(Numbered(40)), jobs="1")
    group.started("producer")
    group.start(lambda: loader(Numbered(40)), jobs="1")
    assert group._ends[-1].recv()[0] is InvalidInput


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o707])
def test_a_folder_that_others_can_enter_is_refused(mode, tmp_path, monkeypatch):
    tmp_path.chmod(mode)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(InvalidInput, match="mktemp"):
        shared(loader(Numbered(4)))


def test_a_folder_of_another_user_is_refused(group, monkeypatch):
    monkeypatch.setenv(FOLDER, str(group.folder))
    monkeypatch.setattr(os, "getuid", lambda: group.folder.stat().st_uid + 1)
    with pytest.raises(InvalidInput, match="other users"):
        shared(loader(Numbered(4)))


@pytest.mark.parametrize("folder", ["", "loader", "/tmp/no-such-folder"])
def test_the_folder_is_an_absolute_path_of_a_folder(folder, monkeypatch):
    monkeypatch.setenv(FOLDER, folder)
    with pytest.raises(InvalidInput, match="absolute"):
        shared(loader(Numbered(4)))


@pytest.mark.parametrize("length", [75, 76])
def test_a_path_that_is_too_long_for_sockets_is_refused(length, group, monkeypatch):
    folder = group.folder / ("x" * (length - len(str(group.folder)) - 1))
    folder.mkdir(0o700)
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setenv(JOBS, "none")
    with pytest.raises(InvalidInput, match="too long" if length > 75 else JOBS):
        shared(loader(Numbered(4)))


def test_without_the_variable_the_loader_stays_as_it_is_and_nothing_is_imported():
    program = (
        "import sys\nfrom advisor.shared_loader import shared\nassert shared(sys) is sys\n"
        "assert not {'torch', 'tensorsocket', 'zmq', 'numpy'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)


PAGE = (Path(__file__).parents[2] / "docs" / "shared-loader.md").read_text()


def test_the_script_of_the_page_trains_as_producer_and_jobs_and_alone(group, tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "train.py").write_text(program)

    def start(**variables):
        command = [sys.executable, "train.py"]
        return subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | variables, stdout=subprocess.PIPE, text=True
        )

    member = {FOLDER: str(group.folder)}
    starts = [start(), start(**member, **{JOBS: "2"}), start(**member, LR="0.2"), start(**member)]
    outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in starts]
    assert [process.returncode for process in starts] == [0, 0, 0, 0]
    batches = [re.findall(r"(\d+) batches", text) for text in outputs]
    assert batches == [["10", "10"], [], ["10", "10"], ["10", "10"]]


def train_bundled(fields):
    line = json.dumps(fields)
    return lambda _: zoo.main(["--device", "cpu", "--steps", "3", line])


@pytest.mark.parametrize("reads_files", [False, True])
def test_bundled_workloads_share_a_loader_by_the_variables_alone(group, tmp_path, reads_files):
    (tmp_path / "red").mkdir()
    for number in range(3):
        Image.new("RGB", (40, 30 + number), (255, 0, 0)).save(tmp_path / f"red/{number}.jpg")
    small = replace(workload("resnet26-cifar10-bs32"), batch=2, loader_workers=1)
    fields = {name: value for name, value in asdict(small).items() if name != "script"}
    fields["data"] = str(tmp_path) if reads_files else None
    import_timm()  # once for all
    group.start(None, train_bundled(fields), jobs="2")
    group.start(None, train_bundled(fields))
    group.start(None, train_bundled(fields))
    assert [*group.ends()] == [0, 0, 0]
