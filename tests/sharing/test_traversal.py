"""What is left of a sharing for some of its jobs."""

import pytest

from advisor.errors import InvalidInput
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import check_count, mps_servers, restricted, running_together


@pytest.mark.parametrize(
    ("text", "running", "left"),
    [
        ("naive", [1, 2], "naive"),
        ("mps=10,20,30", [0, 2], "mps=10,30"),
        ("mps/priority=0,1,1", [0, 2], "mps/priority=0,1"),
        ("mps=10,20,30/priority=1,0,1", [1, 2], "mps=20,30/priority=0,1"),
        ("mps=10,20,30/priority=1,0,1", [0, 2], "mps=10,30"),
        ("mps/priority=0,1[3,1];naive[2]", [0, 2], "mps/priority=1,0"),
        ("mig=3g.71gb[1]+4g.71gb[2,3]/mps/priority=1,0", [1], "mig=4g.71gb[1]/mps"),
        ("mig=1g.18gb,2g.35gb", [1], "mig=2g.35gb"),
        ("mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,60", [0, 2], "mig=4g.71gb[1]+3g.71gb[2]/mps=60"),
        ("mig=4g.71gb[3]+3g.71gb[1,2]/mps", [2], "mig=4g.71gb[1]"),
        ("mig=7g.141gb/ci=3c[1]+4c[2,3]/naive", [1, 2], "mig=7g.141gb/ci=4c[1,2]/naive"),
        ("mps=10,20[3,1];naive[2]", [0, 2], "mps=20,10"),
        ("naive[2];mig=3g.71gb[1]+3g.71gb[3]", [2], "mig=3g.71gb[1]"),
    ],
)
def test_who_still_runs_keeps_what_it_had(text, running, left):
    assert str(restricted(parse_sharing(text), running)) == left


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("serial", [[0], [1], [2]]),
        ("mps", [[0, 1, 2]]),
        ("mig=3g.71gb[2]+4g.71gb[1,3]", [[0, 1, 2]]),
        ("serial[1,3];mps[2]", [[0], [2], [1]]),
        ("mps[1,3];naive[2]", [[0, 2], [1]]),
    ],
)
def test_jobs_hold_memory_beside_those_of_their_group(text, sets):
    assert running_together(parse_sharing(text), 3) == sets


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("naive", []),
        ("mps=50,50,50", [[0, 1, 2]]),
        ("mig=3g.71gb[1,2]/mps+3g.71gb[3]", [[0, 1]]),
        ("mig=7g.141gb/ci=3c[1,2]/mps+4c[3]/mps", [[0, 1], [2]]),
        ("mps[2,3];mig=3g.71gb[1]/mps", [[1, 2], [0]]),
    ],
)
def test_each_instance_has_an_mps_server_of_its_own(text, servers):
    assert mps_servers(parse_sharing(text), 3) == servers


@pytest.mark.parametrize(
    "text",
    [
        "mps=50,50",
        "mps/priority=0,1",
        "mig=3g.71gb",
        "mig=3g.71gb[1,2]",
        "mig=3g.71gb[1,2,4]",
        "naive[1];mps[2,3,4]",
    ],
)
def test_a_sharing_of_other_jobs_is_refused(text):
    with pytest.raises(InvalidInput):
        check_count(parse_sharing(text), 3)
