import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.waiting import PATIENCE_S, until


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answer_of(url):
    """What `url` says, once it says something."""
    direct = build_opener(ProxyHandler({}))
    said = []

    def answered():
        with suppress(URLError, ConnectionError), direct.open(url, timeout=PATIENCE_S) as reply:
            said.append(reply.read().decode())
        return said

    until(answered)
    return said[0]


@pytest.mark.parametrize("end", [os.killpg, os.kill], ids=["Ctrl-C", "one process alone"])
def test_the_page_is_served_to_this_machine_until_it_is_interrupted(end):
    port = free_port()
    command = "from advisor.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "app", "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert answer_of(f"http://127.0.0.1:{port}/_stcore/health") == "ok"
    finally:
        # A terminal interrupts the whole foreground group, others only the process they started.
        end(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert f"http://127.0.0.1:{port}" in out
    assert "Traceback" not in err
    with pytest.raises(ConnectionRefusedError):  # nobody is left who serves it
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()


def test_a_page_interrupted_while_it_starts_ends_quietly_as_interrupted():
    started = (
        "import signal; from advisor.page import serve; "
        "serve.Thread.start = lambda _: None; "
        "serve.run_module = lambda *_, **__: signal.raise_signal(signal.SIGINT); serve.main()"
    )
    ended = subprocess.run([sys.executable, "-c", started], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")
