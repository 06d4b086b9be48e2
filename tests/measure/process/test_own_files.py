"""No writer changes a user's file, wherever a script runs: under overlays, or in a mirror."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.errors import AdvisorError
from advisor.measure import own_files
from advisor.measure.bench import tenants_on
from advisor.measure.launcher import tied_to_parent
from advisor.measure.own_files import mirror_folder, place_for
from advisor.measure.process import scratch_folder, temporary_base, wait_until
from advisor.measure.tenant import setup_of
from advisor.workload.spec import Script, Workload
from tests.measure.process import ways_to_write
from tests.measure.process.ways_to_write import WAYS, file_name, state, victim
from tests.waiting import PATIENCE_S

CHECKOUT = Path(__file__).parents[3]
BIG = b"0\n" * (2**19 + 1)
NOBODY = 65534

# An ordinary user may not be able to reach a Python in the home of root.
BECOME = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"
AS_USER = f"""
mount --make-rprivate /
if ! {BECOME} test -x "$0"; then
  mount --bind "$0" /mnt && mount -t tmpfs none /root && chmod 755 /root && mkdir -p "$0" &&
    mount --bind /mnt "$0" && umount /mnt
fi
HOME=/nonexistent exec {BECOME} "$@"
"""


def as_user(*command):
    return ["unshare", "-m", "sh", "-c", AS_USER, sys.base_prefix, *map(str, command)]


@cache
def overlays_work(*, user):
    """Whether this kernel has overlays, and lets an ordinary `user` have them."""
    code = (
        "import sys, tempfile, pathlib; from advisor.measure.own_files import *\n"
        "with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as at:\n"
        "    base = pathlib.Path(at, 'run', 's'); own = pathlib.Path(at, 'near', 'own')\n"
        "    base.mkdir(parents=True), own.mkdir(parents=True)\n"
        "    print(bool(place_for(Script(command=('true',), folder=str(own)), base).overlays))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        as_user(*words) if user else words,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


@pytest.fixture
def top():
    """A folder that all users reach, unlike that of pytest, which other sessions close again."""
    with TemporaryDirectory(dir=temporary_base(), ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def home(top):
    """A folder with a file for each way to write, links out of it, and files around it."""
    folder = top / "project" / "home"
    for each in (folder, top / "beyond", top / "outside"):
        each.mkdir(parents=True)
    shutil.copy(ways_to_write.__file__, folder)
    (folder / "beyond").symlink_to("../../beyond")
    (folder / "held.log").write_bytes(BIG)
    to_file = file_name("link to a file outside")
    (folder / f"outside-{to_file}").symlink_to(f"../../outside/{to_file}")
    for way in WAYS:
        (folder / victim(way)).write_bytes(BIG)
    (folder / victim("sqlite")).unlink()
    with sqlite3.connect(folder / victim("sqlite")) as trials:
        trials.execute("create table trials (number)")
        trials.execute(f"create table more as select zeroblob({len(BIG)})")
    trials.close()
    return folder


OUT = {"link out of the folder", "absolute", "absolute by a shell", "beside the folder"}


def run_all(home, base, options, *, user):
    base.mkdir(parents=True)
    python = [sys.executable]
    words = ["-m", "tests.measure.process.run_in_place", home, base, options]
    command = [*python, *words, *python, "ways_to_write.py", home]
    if user:
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        subprocess.run(["chown", "-Rh", f"{NOBODY}:{NOBODY}", home.parents[1]], check=True)
        command = as_user(*command)
    done = subprocess.run(
        [*map(str, command)], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("options", "user", "changes"),
    [
        ("-", False, set()),
        pytest.param("-", True, set(), marks=pytest.mark.exhaustive),
        pytest.param("d", False, OUT, marks=pytest.mark.exhaustive),
        pytest.param("d", True, OUT, marks=pytest.mark.exhaustive),
        ("dl", False, None),
        pytest.param("dl", True, None, marks=pytest.mark.exhaustive),
    ],
    ids=["overlay", "overlay-user", "copies", "copies-user", "links", "links-user"],
)
def test_whoever_writes_a_file_of_the_user_stays_or_its_change_is_named(
    options, user, changes, home, top
):
    overlay = "d" not in options
    if overlay and (works := overlays_work(user=user)) != "True":
        pytest.skip(f"no overlays here for this user: {works}")
    before = {way: state(home / victim(way)) for way in WAYS}
    came, said = run_all(home, top / "run" / "s", options, user=user)
    assert (came["overlay"], came["code"]) == (overlay, 0), came
    # A link counts as another file: with links alone, a hard link is one to the link.
    assert came["lines"] == ["hard link"] * (options == "dl"), "each way had an effect"
    changed = {way for way in WAYS if state(home / victim(way)) != before[way]}
    assert changes is None or changed == changes
    named = {*came["written"], *came["others"]}
    assert {str((home / victim(way)).resolve()) for way in changed} <= named
    if options == "dl":  # it was open when it was looked at
        assert came["written"] == [str(home / "held.log")]
    else:
        assert (home / "held.log").read_bytes() == BIG
    assert ("may change files" in said) == (not overlay)


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "run" / "s"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(params=["overlay", "mirror"])
def kind(request, monkeypatch):
    if request.param == "mirror":
        monkeypatch.setattr(own_files, "_overlays", lambda *_: (None, []))
    elif overlays_work(user=False) != "True":
        pytest.skip("no overlays here")
    return request.param


def in_place(folder, base, line):
    """Return what a shell prints that runs `line` where a script of `folder` would run."""
    command = ("sh", "-c", line)
    place = place_for(Script(command=command, folder=str(folder)), base)
    return subprocess.run(
        tied_to_parent(command, place.overlays),
        cwd=place.working,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def bytes_on_disk(folder):
    return sum(each.lstat().st_blocks * 512 for each in folder.rglob("*"))


@pytest.mark.usefixtures("kind")
def test_ten_gigabytes_of_data_are_read_and_not_copied(tmp_path, base):
    folder = tmp_path / "near" / "own"
    folder.mkdir(parents=True)
    for name in ("data.bin", "data.tar"):
        with (folder / name).open("wb") as file:
            file.truncate(10 * 2**30)
    assert in_place(folder, base, "tail -c 1 data.bin | wc -c; wc -c < data.tar").split() == [
        "1",
        str(10 * 2**30),
    ]
    assert bytes_on_disk(base) < 2**20


@pytest.mark.usefixtures("kind")
def test_scripts_of_one_folder_that_run_at_once_do_not_see_each_others_files(tmp_path, base):
    folder = tmp_path / "near" / "own"
    folder.mkdir(parents=True)
    (folder / "log").write_text("old\n")
    line = "echo $0 >> log; echo ready; read go; cat log"
    with ExitStack() as stack:
        running = []
        for name in ("first", "second"):
            (own := base.with_name(name)).mkdir()
            place = place_for(Script(command=("sh",), folder=str(folder)), own)
            running.append(
                stack.enter_context(
                    subprocess.Popen(
                        tied_to_parent(["sh", "-c", line, name], place.overlays),
                        cwd=place.working,
                        text=True,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                    )
                )
            )
        for each in running:
            assert each.stdout.readline() == "ready\n"
        printed = [each.communicate("\n")[0].split() for each in running]
    assert printed == [["old", "first"], ["old", "second"]]
    assert (folder / "log").read_text() == "old\n"


def test_a_folder_may_hold_a_worktree_sockets_pipes_and_thousands_of_files(kind, tmp_path, base):
    own, main = tmp_path / "near" / "own", tmp_path / "main"
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@here"]
    for words in (
        ["init", "-q", main],
        ["-C", main, "commit", "-q", "--allow-empty", "-m", "first"],
        ["-C", main, "worktree", "add", "-q", own],
    ):
        subprocess.run([*git, *words], check=True)
    os.mkfifo(own / "pipe")
    for name, leads_to in (("circle", "circle"), ("nowhere", "gone")):
        (own / name).symlink_to(leads_to)
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(os.path.relpath(own / "socket"))
    (own / "many").mkdir()
    for number in range(6000):
        (own / "many" / str(number)).touch()
    (own / "closed").mkdir(0)
    before = subprocess.run([*git, "-C", main, "log", "--all"], capture_output=True, check=True)
    # A mirror only links to git's files, so nothing is committed there.
    commits, commit = "1", ["true"]
    if kind == "overlay":
        commits, commit = "2", [*git, "commit", "-q", "--allow-empty", "-m", "second"]
    line = f"ls many | wc -l; {' '.join(map(str, commit))}; git log --oneline | wc -l"
    files, count, *names = in_place(own, base, f"{line}; ls -A").split()
    assert (files, count) == ("6000", commits)
    assert {"pipe", "circle", "nowhere", "socket", "many", "closed", ".git"} <= {*names}
    after = subprocess.run([*git, "-C", main, "log", "--all"], capture_output=True, check=True)
    assert after.stdout == before.stdout


@pytest.mark.usefixtures("kind")
def test_a_folder_may_hold_the_folder_of_the_run(tmp_path):
    (tmp_path / "log").write_text("old\n")
    base = tmp_path / "run" / "s"
    base.mkdir(parents=True)
    assert in_place(tmp_path, base, f"echo new >> log; cat log; echo seen > {base}/note") == (
        "old\nnew"
    )
    assert (tmp_path / "log").read_text() == "old\n"
    assert (base / "note").read_text() == "seen\n", "the run's own files are no one else's"


def test_caches_in_the_home_folder_stay_and_what_else_is_there_does_not(
    tmp_path, base, monkeypatch
):
    if overlays_work(user=False) != "True":
        pytest.skip("no overlays here")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    folder = tmp_path / "me" / "own"
    for each in (folder, tmp_path / "me" / ".cache", tmp_path / "me" / "other"):
        each.mkdir(parents=True)
    in_place(folder, base, "touch ~/.cache/kept ~/other/lost ../lost lost")
    assert (tmp_path / "me" / ".cache" / "kept").exists()
    assert not [*(tmp_path / "me").rglob("lost")]
    in_place(tmp_path / "me" / ".cache", base, "touch lost")
    assert not [*(tmp_path / "me").rglob("lost")], "a script may be among them, too"


def test_what_an_overlay_leaves_is_removed_with_the_run(tmp_path):
    (tmp_path / "near" / "own" / "kept").mkdir(parents=True)
    with scratch_folder() as folder:
        base = folder / "s"
        base.mkdir()
        in_place(tmp_path / "near" / "own", base, "mkdir new; chmod 0 new; chmod 500 kept")
        closed = folder / "closed"
        (closed / "inner").mkdir(parents=True)
        closed.chmod(0)
    assert not folder.exists()


def test_a_script_that_was_seen_to_write_to_a_file_of_the_user_fails_its_measurement(
    tmp_path, base, monkeypatch, capsys
):
    monkeypatch.setattr(own_files, "_overlays", lambda *_: (None, []))
    monkeypatch.setattr(own_files, "_COPIED_IN_ALL", 0)
    folder = tmp_path / "near" / "own"
    folder.mkdir(parents=True)
    for name in ("ours.log", "others.log"):
        (folder / name).write_bytes(BIG)
    line = "exec 3>> ours.log; echo x >&3; echo 7 images/s; echo 7 images/s; sleep 600"
    script = Script(command=("sh", "-c", line), folder=str(folder), throughput="([0-9]+) images")
    job = Workload(name="it", source="script", model="it", family="it", batch=1, script=script)

    def measure():
        with tenants_on([setup_of(job, "cpu", {})], base) as (tenant,):
            tenant.send("load")
            assert wait_until(lambda: tenant.exposed._written, PATIENCE_S), "it is looked at"
            (folder / "others.log").write_text("by another program")

    with pytest.raises(AdvisorError, match="changed files of yours"):
        measure()
    said = capsys.readouterr().err
    assert said.index("may change files") < said.index("changed by the script")
    assert "others.log" in said


@pytest.fixture
def original(tmp_path):
    folder = tmp_path / "home" / "near" / "home"  # the name of one above it, too
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("pass")
    (folder / "data" / "deep" / "small").write_text("small")
    (folder / "data" / "big").write_bytes(BIG)
    (folder / "latest").symlink_to("data")
    (folder.parent / "shared.txt").write_text("shared")
    return folder


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_script_finds_what_is_in_its_folder_and_around_it(original, tmp_path):
    place, _ = mirror_folder(original, tmp_path / "scratch")
    assert place.name == "home"
    assert contents(place) == contents(original)
    assert (place / "latest" / "big").read_bytes() == BIG
    assert (place / ".." / "shared.txt").read_text() == "shared"


def test_file_systems_mounted_inside_a_folder_are_covered_or_named(top):
    if os.geteuid() != 0 or overlays_work(user=False) != "True":
        pytest.skip("only root can mount")
    own, base = top / "near" / "own", top / "run" / "s"
    for each in (own / "data", base):
        each.mkdir(parents=True)
    for each in (own / "settings", top / "kept"):
        each.write_text("old\n")
    line = "echo new >> data/x; echo new >> settings; cat data/x settings"
    words = [sys.executable, "-m", "tests.measure.process.run_in_place", own, base, "-"]
    mounts = (
        f"mount --make-rprivate /; cd {own}; mount -t tmpfs none data; echo old > data/x\n"
        f'mount --bind {top}/kept settings; cd {CHECKOUT}; "$@"; cat {own}/data/x'
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounts, "sh", *map(str, words), "sh", "-c", line],
        capture_output=True,
        text=True,
        check=True,
    )
    came, after = done.stdout.splitlines()
    assert json.loads(came)["lines"] == ["old", "new"] * 2
    assert after == "old", "a file system of its own"
    assert json.loads(came)["others"] == [str(own / "settings")], "a single file cannot be covered"
