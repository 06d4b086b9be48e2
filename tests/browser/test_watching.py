"""What the GPU of this machine does is renewed in the browser; its driver is a stand-in."""

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.seen import stands
from tests.browser.served import page_server

pytestmark = pytest.mark.browser

# Python imports a module of this name when it starts.
_DRIVER = """
import pynvml
from tests.hardware.nvml import FUNCTIONS, FakeGpu, FakeLibrary, fill

asked = []

def power(_library, _gpu, reference):
    asked.append(reference)
    return fill(reference, value=100_000 + 1000 * len(asked))

FUNCTIONS["nvmlDeviceGetPowerUsage"] = power
pynvml.nvmlLib = FakeLibrary(FakeGpu())
"""


@pytest.fixture
def watching(browser, tmp_path):
    """The page where such a driver is, and all that its server says to it."""
    (tmp_path / "sitecustomize.py").write_text(_DRIVER)
    said = []

    def hear(frame):
        said.append(frame)

    with page_server(tmp_path, also=tmp_path) as address:
        page = browser.new_page()
        page.on("websocket", lambda socket: socket.on("framereceived", hear))
        page.goto(address)
        stands(page)
        yield page, said
        page.close()


def test_power_is_renewed_and_the_page_does_not_run_again(watching):
    page, said = watching
    page.get_by_role("radio", name="What runs here now?").click(force=True)
    power = page.locator("td", has_text=" W of 700 W")
    power.wait_for()
    stands(page)
    said.clear()
    seen = {power.inner_text()}
    for _ in range(200):
        seen.add(power.inner_text())
        if len(seen) == 3:
            break
        page.wait_for_timeout(100)
    assert len(seen) == 3
    for _ in range(200):  # that a run has ended is said after what it shows
        if len(ends(said)) >= 2:
            break
        page.wait_for_timeout(100)
    assert len(ends(said)) >= 2
    assert set(ends(said)) == {ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY}


def ends(said):
    """How the server said that runs of the script had ended."""
    messages = [ForwardMsg.FromString(frame) for frame in said]
    return [each.script_finished for each in messages
            if each.WhichOneof("type") == "script_finished"]  # fmt: skip
