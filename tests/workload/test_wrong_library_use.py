"""What the library says of arguments that a command line cannot have."""

import pytest

from advisor import Advisor, Job
from advisor.errors import InvalidInput

RESNET = "resnet26-cifar10-bs128"


def test_a_name_where_a_list_of_names_belongs_is_not_taken_letter_by_letter():
    with pytest.raises(InvalidInput, match=r"jobs are a list of names, as \['resnet26"):
        Advisor().recommend(RESNET)


def test_an_objective_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidInput, match=r"no objective is called 'speed'.* makespan, "):
        Advisor().recommend([RESNET], "speed")


def test_a_job_of_a_name_says_what_finds_its_profile():
    with pytest.raises(InvalidInput, match=r"find_profile\('resnet26-cifar10-bs128'\)"):
        Job(RESNET)
