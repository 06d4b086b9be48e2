"""The page: a question and its answer, wrong fields and links in words, and the views of a plan."""

import json
import re
from typing import get_args

import pytest

from advisor.api import Advisor
from advisor.files.writing import write_whole
from advisor.launch.exports import FORMATS
from advisor.plan import ObjectiveName
from advisor.report.format import WAYS
from advisor.report.headline import headline
from advisor.workload.minimal_profile import minimal_text
from tests import shelf, synthetic
from tests.page.seen import (
    badge,
    charts,
    choose,
    click,
    editor,
    fill_in,
    get_commands,
    hand_in,
    jobs,
    line,
    look_at,
    rows_with,
    ways,
    words,
    wrong,
)

RESNET, SMALL, BERT = list(shelf.PROFILES)[:3]
MINE = minimal_text(synthetic.numbers()).encode()


def test_i_open_the_page_and_see_one_badge_one_line_and_one_chart(page):
    page.run()
    assert wrong(page) == ""
    assert badge(page) == ":green-badge[Share]"
    assert re.search(r"[\d.]+ min, [\d.]+ % less than one after another\.$", line(page))
    assert [row for row in jobs(page)] == [RESNET, SMALL, BERT]
    column = json.loads(editor(page).columns)["job"]
    assert {*shelf.PROFILES} <= {*column["type_config"]["options"]}
    assert len(charts(page)) == 2, "the GPU; jobs over time"
    assert [row["best"] for row in ways(page)["rows"]] == [True, *[False] * (len(WAYS) - 1)]
    assert len(" ".join(words(page.markdown)[:2]).split()) <= 60


def test_what_i_change_in_the_table_changes_the_answer_and_the_link(page):
    page.run()
    first = line(page)
    fill_in(page, SMALL, copies=3)
    assert line(page) != first
    assert page.query_params["jobs"].count(f"{SMALL}:3") == 1
    choose(page, BERT)
    assert badge(page) == ":gray-badge[Nothing to share]"
    choose(page)
    assert "at least one job" in wrong(page)


@pytest.mark.parametrize(
    ("cells", "named"),
    [({"copies": 47}, "48"), ({"batch": 7777}, "7777"), ({"due": 0}, "deadline_s")],
)
def test_a_wrong_cell_is_named(page, cells, named):
    fill_in(page.run(), SMALL, **cells)
    assert named in wrong(page)


def test_each_goal_has_an_answer(page):
    page.run()
    for goal in range(len(get_args(ObjectiveName))):
        page.selectbox(key="goal").select_index(goal).run()
        assert re.search(r"\d", line(page))
        assert ("deadline" in wrong(page)) == ("deadlines" in page.selectbox(key="goal").value)


def test_a_missed_deadline_is_never_green(page):
    fill_in(page.run(), BERT, due=0.5)
    assert badge(page) == ":red-badge[Missed]"
    assert "after its deadline" in " ".join(words(page.markdown))


def test_conditions_limit_the_plans(page):
    look_at(page.run(), "All plans")
    assert "MIG" in [*rows_with(page, "rank")["way"]]
    page.checkbox(key="root").uncheck().run()
    assert "MIG" not in [*rows_with(page, "rank")["way"]]
    page.number_input(key="cap").set_value(250.0).run()
    assert "250 W" in " ".join(words(page.markdown))
    page.number_input(key="cap").set_value(701.0).run()
    assert "power cap" in wrong(page)
    assert "700 W" in wrong(page)


@pytest.mark.parametrize(
    "link",
    [
        {"gpu": "rtx-5090", "goal": "fame", "jobs": f"{BERT}:many"},
        {"jobs": "unknown", "free": "much"},
        {"plan": "mps=1"},
    ],
)
def test_a_bad_link_is_said_with_its_key_and_never_answered_for_something_else(page, link):
    page.query_params |= link
    page.run()
    for key, value in link.items():
        assert f"{key}: " in wrong(page)
        assert value.partition(":")[0] in wrong(page)
    if "gpu" in link:
        page.selectbox(key="gpu").set_value(shelf.GPU).run()
        assert "gpu: " not in wrong(page)


def test_a_link_restores_jobs_plan_and_conditions(page):
    page.query_params["jobs"] = f"{BERT}:2@3;due=90;user=ann,{SMALL};user=ann"
    page.query_params |= {"plan": "mps", "free": "20", "goal": "least energy"}
    page.run()
    assert not [*page.error, *page.warning]
    assert [row["copies"] for row in jobs(page).values()] == [2, 1]
    assert (jobs(page)[BERT]["due"], jobs(page)[BERT]["user"]) == (90, "ann")
    assert ways(page)["looked"] == "mps"
    assert any("You look at: MPS" in text.replace("*", "") for text in words(page.markdown))
    assert page.number_input(key="free").value == 20


def test_a_profile_that_i_drop_adds_its_row_and_a_link_says_that_it_is_missing(page):
    hand_in(page.run(), ("mine.json", MINE))
    assert "needs every job's length" in wrong(page), "an epoch of mine has no length"
    assert [*jobs(page)] == [RESNET, SMALL, BERT, "my-job"]
    hand_in(page)
    assert "my-job has no profile here" in wrong(page)


def test_a_job_file_adds_its_jobs_those_for_several_gpus_too(page):
    text = (
        f'[[job]]\nprofile = "{BERT}"\ncopies = 2\nepochs = 3\n\n[[job]]\nprofile = "my-job"\n'
        f"gpus = 2\ndeadline_s = 7200\n"
    )
    page.query_params["jobs"] = SMALL
    hand_in(page.run(), ("jobs.toml", text.encode()), ("mine.json", MINE))
    assert "“More questions” plans several GPUs" in wrong(page)
    assert not page.error
    assert [(row["copies"], row["epochs"]) for row in jobs(page).values()][1:3] == [(1, 1), (2, 3)]
    assert line(page)


def test_a_bad_file_is_named_as_text_and_the_answer_stays(page):
    page.run()
    for name, content in (
        ("bad.json", b"[" * 100_000),
        ("jobs.toml", b'[[job]]\nprofile = "/etc/passwd"'),
        ("[a](http://b).json", b"{"),
    ):
        hand_in(page, (name, content))
        assert wrong(page).startswith(name)
        assert "](" not in page.error[0].value
        assert line(page)


def test_nothing_that_a_job_file_contains_is_run(page, tmp_path):
    touched = tmp_path / "touched"
    text = f'[[job]]\nprofile = "{BERT}"\ncommand = ["touch", "{touched}"]\nfolder = "{tmp_path}"\n'
    hand_in(page.run(), ("jobs.toml", text.encode()))
    get_commands(page)
    assert f"touch {touched}" in "".join(each.value for each in page.code)
    assert not touched.exists()


def test_jobs_that_fit_nowhere_get_one_sentence_and_the_next_step(page):
    choose(page.run(), "dlrm-29gb-bs128")
    assert len(page.error) == 1
    assert "larger GPU" in wrong(page)


def test_without_profiles_the_page_says_how_to_make_one(page, elsewhere):
    assert "advisor profile" in wrong(page.run())
    write_whole(elsewhere / shelf.GPU / "broken.json", '{"workload": 3}')
    assert "broken.json" in wrong(page.run())


def test_every_way_has_its_card_and_views(page):
    page.run()
    best = line(page)
    rows = ways(page)["rows"]
    assert len(rows) == len(WAYS)
    for row in rows:
        click(page, row["plan"])
        assert line(page) == best
        assert ways(page)["looked"] == row["plan"]
        for view in ("Timeline", "Each job", "Compare"):
            look_at(page, view)
            assert not [*page.exception, *page.error, *page.info]


def test_the_plan_that_i_look_at_is_beside_the_best_until_i_go_back(page):
    page.run()
    best, last = line(page), ways(page)["rows"][-1]
    click(page, last["plan"])
    assert line(page) == best
    assert "slower than the best" in " ".join(words(page.markdown))
    next(each for each in page.button if each.label == "Back to the best").click().run()
    assert "plan" not in page.query_params
    assert "than the best" not in " ".join(words(page.markdown))


def test_after_a_change_the_best_plan_is_in_view_unless_i_chose_another(page):
    choose(page.run(), BERT, SMALL)
    assert ways(page)["looked"] == ways(page)["rows"][0]["plan"]
    click(page, "naive")
    fill_in(page, SMALL, copies=2)
    assert ways(page)["looked"] == "naive"
    choose(page, BERT)
    assert ways(page)["looked"] == "serial"
    assert wrong(page) == ""


def test_a_plan_has_commands_in_every_format_or_it_is_said_why_not(page):
    page.run()
    for form in FORMATS:
        page.session_state["format"] = form
        get_commands(page)
        assert not page.exception
        assert page.get("download_button") or page.info


def test_nine_jobs_have_the_plan_of_the_library_and_no_other_line_before_it(page):
    page.query_params["jobs"] = f"{SMALL}:9"
    page.run()
    assert wrong(page) == ""
    lines = [text for text in words(page.markdown) if text.startswith("## ")]
    plan = Advisor(shelf.GPU).recommend([f"{SMALL}:9"])
    assert lines == [f"## {headline(plan, plan.best)}"]
