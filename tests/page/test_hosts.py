"""A real server answers the names of this machine alone, so that no other site reads the page."""

import os
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.page.conftest import PAGE
from tests.waiting import until

APP = "from advisor.__main__ import main; main()"
COMMANDS = {
    "advisor app": ["-c", APP, "app", "--port"],
    "streamlit": ["-m", "streamlit", "run", str(PAGE), "--server.port"],
}


STREAM = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol: streamlit",
]


def status(port, host, path, more=()):
    """The status of the reply to a browser that asks for `path` by the name `host`."""
    names = [f"Host: {host}", f"Origin: http://{host}"]
    lines = [f"GET {path} HTTP/1.1", *names, *more, "\r\n"]
    with socket.create_connection(("localhost", port)) as stream:
        stream.sendall("\r\n".join(lines).encode())
        return int(stream.recv(100).split()[1])


@pytest.fixture(params=list(COMMANDS))
def port(request, tmp_path):
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, *COMMANDS[request.param], str(port)],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(PAGE.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def answers():
        with suppress(OSError), socket.create_connection(("localhost", port)):
            return True

    try:
        until(answers)
        yield port
    finally:
        process.kill()
        process.wait()


def test_only_this_machines_own_names_get_the_page(port):
    for host in ("localhost", "127.0.0.1"):
        assert status(port, f"{host}:{port}", "/_stcore/stream", STREAM) == 101
        assert status(port, f"{host}:{port}", "/") == 200
    for host in ("example.com", f"example.com:{port}", "localhost.example.com", "127.0.0.1@a", ""):
        assert status(port, host, "/_stcore/stream", STREAM) in (400, 403)
        assert status(port, host, "/") == 400
