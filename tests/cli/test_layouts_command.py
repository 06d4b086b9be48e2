"""``advisor layouts``: what is listed and drawn, and what is refused."""

import json

import pytest

from advisor.hardware.catalogue import catalogue
from advisor.hardware.mig_offer import as_offered_here

FIVE = "1g.5gb,2g.10gb,3g.20gb,4g.20gb,7g.40gb"
A100 = ("--gpu", "a100-40gb", "--profiles", FIVE)


@pytest.fixture(autouse=True)
def _no_gpu_at_hand(monkeypatch):
    """The catalogue's table, on a machine with a GPU as well."""
    monkeypatch.setattr("advisor.hardware.mig_offer.live_gpus", lambda: ())


def test_the_document_counts_valid_sets_and_places_the_full_ones(advisor):
    document = json.loads(advisor("layouts", *A100, "--json").out)
    assert list(document) == ["schema", "gpu", "profiles", "valid_placement_sets", "maximal"]
    assert (document["schema"], document["gpu"]) == (1, "a100-40gb")
    assert document["profiles"] == FIVE.split(",")
    assert (document["valid_placement_sets"], len(document["maximal"])) == (297, 19)
    assert document["maximal"][:2] == [
        [{"profile": "7g.40gb", "start": 0, "size": 8}],
        [
            {"profile": "4g.20gb", "start": 0, "size": 4},
            {"profile": "3g.20gb", "start": 4, "size": 4},
        ],
    ]


@pytest.mark.parametrize(
    ("driver", "valid"), [("470", 296), ("470.82.01", 296), ("R470", 296), ("510", 297)]
)
def test_an_old_driver_has_no_4g_beside_a_3g(advisor, driver, valid):
    document = json.loads(advisor("layouts", *A100, "--driver", driver, "--json").out)
    assert document["valid_placement_sets"] == valid


def test_all_profiles_are_meant_where_none_is_named_but_those_too_new_for_the_driver(advisor):
    document = json.loads(advisor("layouts", "--gpu", "a100-40gb", "--json").out)
    assert (document["valid_placement_sets"], len(document["maximal"])) == (2318, 239)
    said = advisor("layouts", "--gpu", "a100-40gb", "--driver", "470", "--json")
    assert json.loads(said.out)["profiles"] == [
        *FIVE.split(",")[:1],
        "1g.5gb+me",
        *FIVE.split(",")[1:],
    ]


@pytest.mark.parametrize(
    ("words", "valid", "full"),
    [
        (["--with", "3g.20gb"], 37, 8),
        (["--with", "3g.20gb@4"], 27, 6),
        (["--with", "3g.20gb@4", "--with", "1g.5gb@0"], 10, 2),
        (["--with", "3g.20gb@4,1g.5gb@0"], 10, 2),
        (["--with", "3g.20gb", "--with", "3g.20gb"], 1, 1),
        (["--with", "7g.40gb"], 1, 1),
    ],
)
def test_beside_instances_in_use_only_what_still_fits_is_listed(advisor, words, valid, full):
    document = json.loads(advisor("layouts", *A100, *words, "--json").out)
    assert (document["valid_placement_sets"], len(document["maximal"])) == (valid, full)


def test_what_is_in_use_is_starred_in_the_drawing(advisor):
    said = advisor("layouts", *A100, "--with", "3g.20gb@4", "--with", "2g.10gb")
    assert "with 3g.20gb@4, 2g.10gb in use (*)" in said.out
    drawings = [line for line in said.out.splitlines() if "|" in line]
    assert len(drawings) == 2
    assert "|*2g          |2g           |*3g                        |" in drawings[0]
    assert all(line.count("*") == 2 for line in drawings)


def test_what_was_never_tried_on_hardware_says_so(advisor):
    out = " ".join(advisor("layouts", *A100).out.split())
    assert "none of it was tried on a GPU with MIG on" in out
    assert "transcripts of nvidia-smi mig -lgip" in out


def test_compute_instances_that_share_an_instance_are_listed(advisor):
    (line,) = [
        line for line in advisor("layouts", *A100).out.splitlines() if line[:14] == "7g.40gb  4c+3c"
    ]
    assert "4c+2c+1c" in line
    rtx = " ".join(advisor("layouts", "--gpu", "rtx-pro-6000-96gb").out.split())
    assert "Compute instances: nobody has said which there can be" in rtx


@pytest.mark.parametrize("key", sorted(key for key, known in catalogue().items() if known.mig))
def test_every_gpu_is_drawn_in_80_plain_columns_and_like_layouts_once(advisor, key, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = advisor("layouts", "--gpu", key, "--all").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("\x1b" in line for line in lines)
    full = len(json.loads(advisor("layouts", "--gpu", key, "--json").out)["maximal"])
    assert sum("|" in line for line in lines) == full
    alike = [line for line in advisor("layouts", "--gpu", key).out.splitlines() if "|" in line]
    assert len(alike) <= 70
    assert sum(int(line.split()[-1]) for line in alike) == full


def test_a_driver_at_hand_is_asked_unless_another_is_named(advisor, monkeypatch):
    from dataclasses import replace

    def narrow(gpu):
        return replace(gpu, mig=gpu.mig[-1:]), 580

    assert as_offered_here(catalogue()["h200-141gb"])[1] is None
    monkeypatch.setattr("advisor.hardware.mig_offer.as_offered_here", narrow)
    assert json.loads(advisor("layouts", "--json").out)["profiles"] == ["7g.141gb"]
    named = json.loads(advisor("layouts", "--driver", "580", "--json").out)["profiles"]
    assert len(named) == 7


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--gpu", "a100"], 2, "'a100' may be a100-40gb or a100-80gb. Say which."),
        (["--gpu", "l4-24gb"], 3, "l4-24gb has no MIG"),
        (["--gpu", "l4-24gb", "--with", "1g.5gb"], 3, "l4-24gb has no MIG"),
        (["--profiles", "3g.20gb"], 2, "no MIG profile of h200-141gb is called '3g.20gb'. Near: "),
        (["--profiles", ""], 2, "no MIG profile of h200-141gb is called ''"),
        (["--with", "9g.71gb"], 2, "It has 1g.18gb, 1g.18gb+me, 1g.35gb"),
        (["--with", "3g.71gb@x"], 2, "after @ comes the first memory slice, e.g. 3g.71gb@4"),
        (["--with", "3g.71gb@2"], 2, "3g.71gb starts at 0, 4, not 2"),
        (["--with", "3g.71gb@99"], 2, "3g.71gb starts at 0, 4, not 99"),
        (["--with", "4g.71gb", "--with", "4g.71gb"], 3, "at most 1 of 4g.71gb"),
        (["--with", "3g.71gb@0", "--with", "1g.18gb@3"], 3, "share one of its 8 memory slices"),
        (["--with", "4g.71gb,3g.71gb", "--driver", "470"], 3, "needs a driver of R510 or later"),
        (["--gpu", "a100-40gb", "--profiles", "1g.10gb", "--driver", "470"], 3, "R525 or later"),
        (["--gpu", "rtx-pro-6000-96gb", "--driver", "550"], 3, "R575 or later, not R550"),
        (["--driver", "new"], 2, "'new' is not a driver with MIG"),
        (["--driver", "-470"], 2, "is not a driver with MIG"),
        (["--driver", "418"], 2, "450 or later"),
    ],
)
def test_a_wrong_word_is_refused_with_its_message_and_exit_code(advisor, words, code, said):
    answer = advisor("layouts", *words)
    assert said in answer.err
    assert (answer.code, answer.out) == (code, "")
