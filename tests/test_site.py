"""The site: it builds without a broken link, and its generated pages are as their scripts write."""

import re
import subprocess
import sys

import pytest
import vl_convert

import advisor
from advisor.schemas import schema_names
from research.commands import FILE as COMMANDS_PAGE
from research.commands import commands_text
from research.explained import GPU, PAGE, bars, chart, pictures, wins_text
from research.files import PROFILES, ROOT, measured
from research.report import filled


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.exhaustive
def test_the_site_has_every_page_and_public_name_and_its_links_lead_to_pages(site):
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")]
    assert [page for page in pages if not (site / page).is_file()] == []
    links = re.findall(r'href="([^":#]+)["#]', (site / "accuracy.html").read_text())
    assert {"notebooks/how_good_are_the_predictions.html", "profiles/REPORT.html"} <= {*links}
    assert [link for link in links if not (site / link).exists()] == []
    reference = (site / "reference" / "library.html").read_text()
    assert [name for name in advisor.__all__ if f'id="advisor.{name}"' not in reference] == []


@pytest.mark.exhaustive
def test_a_page_loads_nothing_from_another_host(site):
    image = r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)'
    style = r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(https?:[^"]+)'
    for page in site.rglob("*.html"):
        assert [
            each for kind in (image, style) for each in re.findall(kind, page.read_text())
        ] == []


def test_the_page_of_commands_is_as_their_help():
    assert COMMANDS_PAGE.read_text() == commands_text(), "run `python -m research.commands`"


def test_the_numbers_of_the_page_on_ways_to_share_follow_from_the_runs():
    text = wins_text(*measured(PROFILES / GPU))
    assert filled(PAGE.read_text(), "wins", text) == PAGE.read_text()
    gains = [float(cell) for cell in re.findall(r"(\d\.\d\d)x \|", text)]
    assert len(gains) == 9


def test_the_reference_has_every_schema():
    page = (ROOT / "docs" / "reference" / "schemas.md").read_text()
    assert {*re.findall(r"^\| `(\w+)`", page, re.MULTILINE)} == {*schema_names()}


def test_pictures_of_the_ways_to_share_are_as_their_script_draws_them():
    for picture in pictures():
        file = PAGE.with_name(f"{PAGE.stem}-{picture.name}.svg")
        assert file.read_text() == vl_convert.vegalite_to_svg(chart(picture).to_json()), file


def test_jobs_on_their_own_instances_never_use_the_sms_of_another():
    mig = next(picture for picture in pictures() if picture.name == "mig")
    (low, wall), (_, top) = mig.walls
    ends = {"job A": (low, wall), "job B": (wall, top)}
    for bar in bars(mig):
        least, most = ends[bar["job"]]
        assert least - 1e-9 <= bar["low"] < bar["high"] <= most + 1e-9


def test_time_sliced_jobs_never_run_at_once_and_mps_clients_do():
    def overlap(one, other):
        return max(one["start"], other["start"]) < min(one["end"], other["end"])

    slicing, mps, *_ = map(bars, pictures())
    for rows, at_once in ((slicing, False), (mps, True)):
        ours, theirs = ([row for row in rows if row["job"] == job] for job in ("job A", "job B"))
        assert any(overlap(one, other) for one in ours for other in theirs) == at_once
