"""One question has one answer: on the page, from the command, and from the library.

`make check-all` draws 200 questions, `make check` few and always the same.
"""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from math import ceil
from unittest.mock import patch

import pytest
import streamlit as st
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as draw
from streamlit.testing.v1 import AppTest

from advisor.api import Advisor
from advisor.cli import main
from advisor.errors import AdvisorError
from advisor.hardware.gpus import known_gpus
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import Conditions
from advisor.prediction.find_profile import names_of_jobs
from advisor.report.forecast import deadlines_missed
from advisor.report.headline import headline
from advisor.report.ways import named_plan
from advisor.workload.job import Job
from tests.page.conftest import PAGE
from tests.page.seen import line, ways, words
from tests.waiting import PATIENCE_S

MOST_JOBS = 8

CONDITIONS = {  # on the page, on the command line, and in the library
    "": ({}, (), {}),
    "without root": ({"root": "false"}, ("--no-root",), {"root": False}),
    "jobs share instances": ({"shared": "true"}, ("--mig", "any"), {"mig": "any"}),
    "a plan may choose a cap": ({"caps": "true"}, ("--power-cap", "auto"), {"power_caps": True}),
}


@pytest.fixture(scope="module", autouse=True)
def bundled_profiles_alone():
    """The page remembers advisors, those of the folders of other tests too."""
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@dataclass(frozen=True)
class Question:
    """Jobs as name, copies, epochs, and minutes until they are due; and how plans are ranked."""

    gpu: str
    jobs: tuple[tuple[str, int, float, float | None], ...]
    objective: str
    condition: str = ""
    cap_w: int | None = None
    upper: bool = False

    def of_library(self):
        advisor = Advisor(self.gpu)
        if self.cap_w is not None:
            advisor = advisor.under(self.cap_w)
        jobs = [
            Job(advisor.find_profile(name), epochs=epochs, deadline_s=due and 60 * due)
            for name, copies, epochs, due in self.jobs
            for _ in range(copies)
        ]
        conditions = Conditions(**CONDITIONS[self.condition][2])
        level = "p95" if self.upper else "p50"
        return advisor.recommend(jobs, self.objective, conditions=conditions, level=level)

    def of_page(self):
        page = AppTest.from_file(str(PAGE), default_timeout=PATIENCE_S)
        jobs = [
            f"{name}:{copies}@{epochs:g}{'' if due is None else f';due={due:g}'}"
            for name, copies, epochs, due in self.jobs
        ]
        page.query_params["jobs"] = ",".join(jobs)
        page.query_params |= {"gpu": self.gpu, "goal": OBJECTIVES[self.objective].choice}
        page.query_params |= CONDITIONS[self.condition][0]
        page.query_params |= {} if self.cap_w is None else {"cap": str(self.cap_w)}
        page.query_params |= {"upper": "true"} if self.upper else {}
        page.run()
        assert not page.exception
        return page

    def of_command(self, folder):
        """Return the stdout and the stderr of the command."""
        named = ["recommend", "--gpu", self.gpu, "--objective", self.objective]
        named += CONDITIONS[self.condition][1]
        named += [] if self.cap_w is None else ["--power-cap", str(self.cap_w)]
        named += ["--pessimistic"] if self.upper else []
        if any(due for *_, due in self.jobs):
            file = folder / "jobs.toml"
            file.write_text("\n".join(map(toml, self.jobs)))
            named += ["--jobs", str(file)]
        else:
            named += [f"{name}:{copies}@{epochs:g}" for name, copies, epochs, _ in self.jobs]
        out, err = io.StringIO(), io.StringIO()
        wide = patch.dict(os.environ, {"COLUMNS": "1000"})
        with wide, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit):
            main(named)
        return out.getvalue(), err.getvalue()


def toml(job):
    name, copies, epochs, due = job
    text = f'[[job]]\nprofile = "{name}"\ncopies = {copies}\nepochs = {epochs:g}\n'
    return text if due is None else f"{text}deadline_s = {60 * due:g}\n"


@draw.composite
def questions(draw_one):
    gpu = draw_one(draw.sampled_from(sorted(known_gpus())))
    names = draw_one(
        draw.lists(
            draw.sampled_from(names_of_jobs(known_gpus()[gpu])), min_size=1, max_size=3, unique=True
        )
    )
    due = draw_one(draw.booleans())
    jobs = []
    for left, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
        most = MOST_JOBS - left - sum(copies for _, copies, *_ in jobs)
        copies = draw_one(draw.integers(1, min(3, most)))
        epochs = draw_one(draw.sampled_from([0.5, 1, 2, 10, 150]))
        minutes = draw.none() | draw.sampled_from([1, 15, 60, 600])
        jobs.append((name, copies, epochs, draw_one(minutes) if due else None))
    objective = draw_one(draw.sampled_from(sorted(OBJECTIVES)))
    limit_w = known_gpus()[gpu].power_limit_w
    condition, cap_w = draw_one(draw.sampled_from(sorted(CONDITIONS))), None
    if condition != "a plan may choose a cap" and limit_w and draw_one(draw.booleans()):
        cap_w = ceil(0.8 * limit_w)
    return Question(gpu, tuple(jobs), objective, condition, cap_w, draw_one(draw.booleans()))


@settings(phases=[Phase.explicit, Phase.generate])
@given(question=questions())
@example(question=Question("h200-141gb", (("gcn-arxiv-bs1", 1, 1, 6000),), "energy"))
def test_a_question_has_one_answer(question, tmp_path_factory):
    page = question.of_page()
    out, err = question.of_command(tmp_path_factory.mktemp("jobs"))
    try:
        advised, refusal = question.of_library(), None
    except AdvisorError as error:
        refusal = str(error)
    if refusal is not None:
        assert refusal in err
        assert any(refusal in text for text in words(page.error))
        return
    first = [*deadlines_missed(advised), headline(advised, advised.best)]
    assert line(page) == f"## {first[-1]}"
    assert out.splitlines()[: len(first)] == first
    table = ways(page)
    (best,) = (row["plan"] for row in table["rows"] if row["best"])
    assert table["looked"] == best
    assert named_plan(advised, best) is advised.best
    sharing = str(advised.best.sharing)
    assert len(advised.jobs) == 1 or f"--sharing {sharing}" in out.replace("'", "")
