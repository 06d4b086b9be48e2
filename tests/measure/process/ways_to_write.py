"""Changes files of its working folder, each in a way of its own; run by `test_own_files`.

`python ways_to_write.py FOLDER` runs all of `WAYS`, prints those that had no effect for itself, and
keeps a file open until its input ends. FOLDER is the absolute path of its own folder.
"""

import ctypes
import mmap
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def shell(line):
    return lambda name: subprocess.run(line.format(name), shell=True, check=True)


def opened(name):
    with Path(name).open("r+b") as file:
        file.write(b"x")


def low(name):
    descriptor = os.open(name, os.O_WRONLY | os.O_TRUNC)
    os.close(descriptor)


def mapped(name):
    with Path(name).open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0] = 120


def array(name):
    np.memmap(name, mode="r+", dtype="u1")[0] = 1


def database(name):
    connection = sqlite3.connect(name)
    connection.execute("insert into trials values (1)")
    connection.commit()
    connection.close()


def torch_saved(name):
    import torch

    torch.save(torch.zeros(2), name)


def scripted(name):
    import torch

    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), name)


def by_c(name):
    """Write without Python, like HDF5."""
    library = ctypes.CDLL(None)
    stream = library.open(os.fsencode(name), os.O_RDWR)
    assert library.pwrite(stream, b"x", 1, 5) == 1
    library.close(stream)


def copied(name):
    Path("new").write_text("new")
    shutil.copyfile("new", name)


def renamed_over(name):
    Path("new").write_text("new")
    Path("new").replace(name)


def linked(name):
    os.link(name, "second-name")
    with Path("second-name").open("ab") as file:
        file.write(b"x")


def through_link(name):
    Path("to-it").symlink_to(name)
    subprocess.run("echo x >> to-it", shell=True, check=True)


def back_into(name):
    Path("..", Path.cwd().name, name).write_text("x")


def absolute(name):
    Path(sys.argv[1], name).write_text("x")


def absolute_by_shell(name):
    subprocess.run(f"echo x >> {sys.argv[1]}/{name}", shell=True, check=True)


WAYS = {
    "redirected": shell("echo x > {}"),
    "appended": shell("echo x >> {}"),
    "tee": shell("echo x | tee -a {} > /dev/null"),
    "cp": shell("echo x > new; cp new {}"),
    "mv": shell("echo x > new; mv -f new {}"),
    "sed": shell("sed -i s/0/1/ {}"),
    "dd": shell("echo x | dd of={} conv=notrunc status=none"),
    "truncate": shell("truncate -s 5 {}"),
    "rm": shell("rm {}"),
    "touch": shell("touch -d 2001-01-01 {}"),
    "perl": shell('perl -e \'open(F, ">>", "{}"); print F "x"\''),
    "awk": shell('awk \'BEGIN {{ print "x" > "{}" }}\''),
    "os.truncate": lambda name: os.truncate(name, 5),
    "opened": opened,
    "os.open": low,
    "mmap": mapped,
    "memmap": array,
    "sqlite": database,
    "torch.save": torch_saved,
    "torch.jit.save": scripted,
    "by C": by_c,
    "copyfile": copied,
    "renamed over": renamed_over,
    "unlinked": os.unlink,
    "hard link": linked,
    "symbolic link": through_link,
    "link out of the folder": shell("echo x >> beyond/{}"),
    "link to a file outside": shell("echo x >> outside-{}"),
    "back into the folder": back_into,
    "absolute": absolute,
    "absolute by a shell": absolute_by_shell,
    "beside the folder": shell("echo x >> ../{}"),
}
ELSEWHERE = {
    "link out of the folder": "beyond/{}",
    "link to a file outside": "outside-{}",
    "beside the folder": "../{}",
}


def victim(way):
    """The path of the file that a way changes, from its folder."""
    return ELSEWHERE.get(way, "{}").format(file_name(way))


def file_name(way):
    return way.replace(" ", "-") + ".log"


def state(path):
    """Size, time of the last change and contents of a file, if it is there."""
    path = Path(path)
    if not path.exists():
        return None
    return path.stat().st_ino, path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes()


def main():
    if os.environ.get("GUARD"):
        sys.path.insert(0, os.environ["INSIDE"])
        from advisor_inside.files import guard_links

        guard_links(Path(os.environ["GUARD"]))
    for way, change in WAYS.items():
        path = Path(sys.argv[1], file_name(way)) if "absolute" in way else victim(way)
        before = state(path)
        change(file_name(way))
        if state(path) == before:
            print(way, flush=True)
    before_b = Path("held.log").stat().st_size
    with subprocess.Popen("cat >> held.log", shell=True, stdin=subprocess.PIPE) as holder:
        holder.stdin.write(b"x")
        holder.stdin.flush()
        while Path("held.log").stat().st_size == before_b:  # until it is open and written to
            time.sleep(0.01)
        print("held", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
