"""What is said of names that are not known."""

import pytest

from advisor.errors import UnknownName

KNOWN = [
    "resnet50-imagenet64-bs128", "resnet50-imagenet64-bs32", "resnet152-imagenet-bs128",
    "regnety_016-imagenet64-bs128", "gpt2-small-finetune-bs2", "gpt2-small-pretrain-bs8",
    "gpt2-medium-pretrain-bs4", "gpt2-medium-finetune-bs4", "gpt2-medium-finetune-bs16",
]  # fmt: skip


def near(name):
    said = str(UnknownName("profile", name, KNOWN, "Name another."))
    return said.partition("Near: ")[2].partition(".")[0].split(", ")


def test_near_a_misspelt_job_are_only_those_that_are_about_as_alike_as_the_likeliest():
    assert near("resnet50-imagnet64-bs128") == KNOWN[:2]


def test_near_the_beginning_of_names_are_those_that_begin_so_four_at_most():
    assert near("ResNet50") == sorted(KNOWN[:2])
    assert len(near("gpt2")) == 4
    assert all(each.startswith("gpt2") for each in near("gpt2"))


@pytest.mark.parametrize("name", ["", "zzz"])
def test_a_name_like_no_other_has_none_near_it(name):
    assert "Near" not in str(UnknownName("profile", name, KNOWN, "Name another."))
