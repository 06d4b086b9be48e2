"""nvidia-smi and nvidia-cuda-mps-control for scripts: one GPU in MIG mode, with state behind them.

What is on PATH asks a server in the test's own process. It obeys the MIG rules as
`tests.hardware.mig_twin` has them, refuses to destroy what is in use, prints as the MIG User Guide
shows, and fails, or interrupts or kills the script, at the call that the test names.
"""

import os
import signal
import socketserver
import threading
from dataclasses import dataclass, field
from uuid import uuid4

from advisor.hardware.gpus import gpu
from advisor.measure.process import processes_of
from tests.hardware.mig_twin import is_valid, rows_of

_CLIENT = """\
#!/bin/bash
[ $# -gt 0 ] || read -r asked
exec 3<> /dev/tcp/127.0.0.1/%d || exit 9
printf '%%s\\037' "${0##*/}" "$CUDA_VISIBLE_DEVICES" "$CUDA_MPS_PIPE_DIRECTORY" "${asked-}" "$@" >&3
echo >&3
read -r status <&3
read -r -d '' text <&3 || printf %%s "$text"
exit "$status"
"""
# Compute slices of a GPU instance -> of a part -> where it may start: NVIDIA's mock for the 7g.
COMPUTE = {
    1: {1: (0,)},
    2: {1: (0, 1), 2: (0,)},
    3: {1: (0, 1, 2), 2: (0,), 3: (0,)},
    4: {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)},
    7: {1: tuple(range(7)), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)},
}
_CHANGES = {"-cgi", "-cci", "-dgi", "-dci", "-mig", "-d", "quit"}


@dataclass
class Part:
    """A GPU instance: its row in the table, its first memory slice, its parts by ID."""

    row: int
    start: int
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)  # size, start


class SmiMachine:
    """What the two programs tell of and change.

    Attributes:
        held: GPU instances by ID.
        daemons: Folder of pipes -> device, of MPS daemons that run.
        mode: MIG mode, now and after a reset.
        caps_w: Power limits that were set, by UUID.
        quit_too_early: Whether MPS was asked to end while a client of it ran.
        calls: The words of each call, in order.
        fault: Number of the call that goes wrong, and how: ``"fails"``, ``"worked"`` (and says that
            it failed), ``"lies"`` (does nothing and says that it worked), ``"int"``, ``"term"`` or
            ``"kill"`` (the script gets the signal once it worked; a SIGINT comes from a terminal,
            so the call gets it, too).
        broken: Word of the calls that always fail.
    """

    def __init__(self, key="h200-141gb", index=0, uuid=None):
        self.card, self.index = gpu(key), index
        self.uuid = uuid or f"GPU-{uuid4()}"
        self.others = [f"GPU-{uuid4()}" for _ in range(4)]
        self.broken: str | None = None
        self.rows = rows_of(self.card)
        self.held: dict[int, Part] = {}
        self.daemons: dict[str, str] = {}
        self.mode = ["Enabled", "Enabled"]
        self.caps_w: dict[str, float] = {}
        self.quit_too_early = False
        self.made = 0
        self.calls: list[str] = []
        self.fault: tuple[int, str] | None = None
        self.script = 0
        self._turn = threading.Lock()

    def install(self, folder):
        """Put both programs into `folder`; the server that they ask, to be shut down."""
        machine = self

        class Asked(socketserver.StreamRequestHandler):
            def handle(self):
                line = self.rfile.readline().decode()
                if not line:  # the program was killed before it could ask
                    return
                name, device, pipes, asked, *words = line.split("\x1f")
                status, text = machine.answer(name, device, pipes, asked, words[:-1])
                self.wfile.write(f"{status}\n{text}".encode())

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Asked)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name in ("nvidia-smi", "nvidia-cuda-mps-control"):
            (folder / name).write_text(_CLIENT % server.server_address[1])
            (folder / name).chmod(0o755)
        return server

    @property
    def cap_w(self):
        return self.caps_w.get(self.uuid, 500.0)

    @property
    def changes(self):
        """Numbers of the calls that change something."""
        return [
            n
            for n, call in enumerate(self.calls)
            if _CHANGES & set(call.split()) or "--power-limit" in call
        ]

    def layout(self):
        return sorted(
            (self.card.mig[each.row].profile_id, each.start, sorted(each.parts.values()))
            for each in self.held.values()
        )

    def answer(self, name, device, pipes, asked, words):
        with self._turn:
            number = len(self.calls)
            self.calls.append(" ".join([*words, *asked.split()]))
            how = self.fault[1] if self.fault and self.fault[0] == number else None
            if how == "fails" or (self.broken and self.broken in self.calls[-1]):
                return 1, "something failed for a moment\n"
            if how == "lies":
                return 0, "\n"
            status, text = (
                self._smi(words) if name == "nvidia-smi" else self._mps(device, pipes, asked, words)
            )
            if how == "worked":
                return 1, "something failed afterwards\n"
            if how == "int":
                os.killpg(self.script, signal.SIGINT)
            elif how in ("term", "kill"):
                os.kill(self.script, signal.SIGTERM if how == "term" else signal.SIGKILL)
            return status, text

    def _mps(self, device, pipes, asked, words):
        if words == ["-d"]:
            if pipes in self.daemons:
                return 1, "An instance of this daemon is already running\n"
            self.daemons[pipes] = device
            return 0, ""
        if pipes not in self.daemons:
            return 1, "Cannot find MPS control daemon process\n"
        if asked == "quit":  # the real one waits for its clients then
            clients = set(processes_of("CUDA_MPS_PIPE_DIRECTORY", pipes))
            self.quit_too_early |= bool(clients & set(processes_of("ADVISOR_MARK", "*")))
            del self.daemons[pipes]
        return 0, "77\n" if asked == "get_server_list" else "\n"

    def _smi(self, words):
        gpus = dict(enumerate(self.others)) | {self.index: self.uuid}
        match words:
            case ["-i", at, *_] | ["mig", "-i", at, *_] if at not in gpus.values():
                said = 6, "No devices were found\n"
            case ["--query-gpu=uuid,index,mig.mode.current", *_]:
                modes = dict.fromkeys(gpus, "Disabled") | {self.index: self.mode[0]}
                rows = (f"{gpus[at]}, {at}, {modes[at]}\n" for at in sorted(gpus))
                said = 0, "".join(rows)
            case ["-i", at, "--query-gpu=power.limit", *_]:
                said = 0, f"{self.caps_w.get(at, 500.0):.2f}\n"
            case ["-i", at, cap] if cap.startswith("--power-limit="):
                self.caps_w[at] = float(cap.partition("=")[2])
                said = 0, ""
            case ["-i", at, "--query-gpu=mig.mode.current,mig.mode.pending", *_]:
                said = 0, ", ".join(self.mode) + "\n"
            case ["-i", _, "-mig", on]:
                self.mode = ["Enabled" if on == "1" else "Disabled"] * 2
                said = (1, "In use by another client\n") if self.held else (0, "")
            case ["-i", _, "-q"]:
                said = 0, self._queried()
            case ["-L"]:
                said = 0, self._listed()
            case ["mig", "-i", _, *asked] if self.mode[0] == "Enabled":
                said = self._mig(asked)
            case _:
                said = 2, f"cannot do {words}\n"
        return said

    def _mig(self, asked):
        match asked:
            case ["-lgi"]:
                said = self._instances()
            case [*_, "-gi", number] if not number.isdigit():
                said = 2, f"Invalid GPU instance ID: {number}\n"
            case ["-lci", "-gi", number]:
                said = self._parts(int(number))
            case ["-cgi", places, *default]:
                said = self._create(places.split(","), default == ["-C"])
            case ["-cci", names, "-gi", number]:
                said = self._divide(int(number), names.split(","))
            case ["-dci", "-gi", number]:
                said = self._destroy_parts(int(number))
            case ["-dgi", "-gi", number]:
                said = self._destroy(int(number))
            case _:
                said = 2, f"cannot do mig {asked}\n"
        return said

    def put(self, profile, start, size=None):
        """Have an instance there, as somebody made it."""
        self.made += 1
        row = next(n for n, each in enumerate(self.card.mig) if each.profile_id == profile)
        slices = size or self.card.mig[row].compute_slices
        self.held[self.made] = Part(row, start, {0: (slices, 0)})

    def _create(self, places, default):
        for place in places:
            profile, start = map(int, place.split(":"))
            row = next(n for n, each in enumerate(self.card.mig) if each.profile_id == profile)
            there = [(each.row, each.start) for each in self.held.values()]
            if not is_valid([*there, (row, start)], self.rows):
                return 19, "Unable to create a GPU instance: Insufficient Resources\n"
            self.made += 1
            slices = self.card.mig[row].compute_slices
            self.held[self.made] = Part(row, start, {0: (slices, 0)} if default else {})
        return 0, "Successfully created GPU instance\n"

    def _divide(self, number, names):
        if number not in self.held:
            return 6, "Not Found\n"
        held = self.held[number]
        for name in names:
            size = int(name.partition("c.")[0].partition("g.")[0])
            taken = {at + n for length, at in held.parts.values() for n in range(length)}
            free = (
                at
                for at in COMPUTE[self.card.mig[held.row].compute_slices][size]
                if not taken & set(range(at, at + size))
            )
            if (start := next(free, None)) is None:
                return 19, "Insufficient Resources\n"
            held.parts[len(held.parts)] = (size, start)
        return 0, "Successfully created compute instance\n"

    def _in_use(self, number):
        return any(
            device.startswith(f"MIG-{number}-")
            and (number, int(device.split("-")[2])) in self._ids()
            for device in self.daemons.values()
        )

    def _ids(self):
        return {(number, part) for number, held in self.held.items() for part in held.parts}

    def _destroy_parts(self, number):
        if number not in self.held or not self.held[number].parts:
            return 6, "No compute instances found: Not Found\n"
        if self._in_use(number):
            return 1, "In use by another client\n"
        self.held[number].parts.clear()
        return 0, "Successfully destroyed compute instance\n"

    def _destroy(self, number):
        if number not in self.held:
            return 6, "No GPU instances found: Not Found\n"
        if self.held[number].parts:
            return 1, "In use by another client\n"
        del self.held[number]
        return 0, "Successfully destroyed GPU instance\n"

    def _name(self, held, size):
        row = self.card.mig[held.row]
        return row.name if size == row.compute_slices else f"{size}c.{row.name}"

    def _instances(self):
        if not self.held:
            return 6, "No GPU instances found: Not Found\n"
        kinds = {number: self.card.mig[held.row] for number, held in self.held.items()}
        rows = (
            f"|   {self.index}  MIG {kind.name:<16} {kind.profile_id:>3}   {number:>5}     "
            f"{self.held[number].start}:{kind.memory_slices}     |\n"
            for number, kind in kinds.items()
        )
        return 0, "| GPU instances:  |\n|=====|\n" + "+---+\n".join(rows)

    def _parts(self, number):
        if number not in self.held or not self.held[number].parts:
            return 6, "No compute instances found: Not Found\n"
        held = self.held[number]
        rows = (
            f"|   {self.index}   {number:>4}      MIG {self._name(held, size):<14}  0    "
            f"{part:>5}     {start}:{size}     |\n"
            for part, (size, start) in held.parts.items()
        )
        return 0, "| Compute instances:  |\n" + "".join(rows)

    def _queried(self):
        head = "    MIG Mode\n        Current : Enabled\n        Pending : Enabled\n"
        devices = (
            f"    MIG Device\n        Index                             : {index}\n"
            f"        GPU Instance ID                   : {number}\n"
            f"        Compute Instance ID               : {part}\n"
            for index, (number, part) in enumerate(sorted(self._ids()))
        )
        return head + "".join(devices) + "    Processes\n        GPU instance ID : N/A\n"

    def _listed(self):
        lines = "".join(
            f"  MIG {self._name(self.held[number], self.held[number].parts[part][0]):<15} "
            f"Device  {index}: (UUID: MIG-{number}-{part})\n"
            for index, (number, part) in enumerate(sorted(self._ids()))
        )
        other = "GPU 7: NVIDIA H200 (UUID: GPU-7)\n  MIG 7g.141gb Device  0: (UUID: MIG-9-9)\n"
        return f"GPU {self.index}: NVIDIA H200 (UUID: {self.uuid})\n{lines}{other}"
