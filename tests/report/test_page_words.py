from pathlib import Path

import pytest

from advisor.plan.objectives import OBJECTIVES
from advisor.report.page_words import FIELDS, on_the_page

PAGE = Path(__file__).parents[2] / "advisor" / "page"


def test_an_option_is_called_by_the_field_that_asks_the_same():
    said = "Allow more with --hurt, run all under MPS (--running-sharing mps), or wait."
    assert on_the_page(said) == (
        "Allow more with “May get slower by, %”, run all under MPS "
        "(“What runs shares the GPU: mps”), or wait."
    )
    said = on_the_page("Use --objective energy.")
    assert said == "Use “Best means: least energy”."
    said = on_the_page("deadlines needs a job that has one: deadline_s in a file of jobs.")
    assert said == "“deadlines kept” needs a job that has one: “due, min”."


def test_an_objective_is_called_as_in_the_list_to_choose_from():
    assert on_the_page("Ranked by throughput: makespan needs every job's length.") == (
        "Ranked by “most work per hour”: “all done soonest” needs every job's length."
    )


@pytest.mark.parametrize(
    "said", ["advisor profile --from-numbers", "--hurt-not", "a -- b", "by energy", "makespan"]
)
def test_all_else_is_left_as_it_is(said):
    assert on_the_page(said) == said


def test_each_field_is_on_the_page_and_offers_what_is_to_be_chosen_there():
    page = "".join(file.read_text() for file in PAGE.glob("*.py"))
    offered = {"mps", *(each.choice for each in OBJECTIVES.values())}
    for field, _, choice in (each.partition(": ") for each in FIELDS.values()):
        assert field in page
        assert not choice or choice in offered
