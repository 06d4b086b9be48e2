"""The site: it builds without a broken link, and its generated pages are as their scripts write."""

import re

import pytest
import vl_convert

import advisor
from advisor.schemas import schema_names
from research import site
from research.commands import FILE as COMMANDS_PAGE
from research.commands import commands_text
from research.explained import GPU, PAGE, bars, chart, pictures, wins_text
from research.files import PROFILES, ROOT, filled, measured
from research.job_fields import FILE as JOB_FILE_PAGE
from research.job_fields import fields_text

SETTINGS = site.SETTINGS.read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("zensical", reason="the extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    site.copy_pages(folder)
    assert site.build(folder) == 0
    return folder / "site"


@pytest.mark.exhaustive
def test_the_site_has_every_page_and_public_name_and_its_links_lead_to_pages(built):
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")]
    assert [page for page in pages if not (built / page).is_file()] == []
    links = re.findall(r'href="([^":#]+)["#]', (built / "accuracy.html").read_text())
    assert {"notebooks/how_good_are_the_predictions.html", "profiles/REPORT.html"} <= {*links}
    assert [link for link in links if not (built / link).exists()] == []
    reference = (built / "reference" / "library.html").read_text()
    assert [name for name in advisor.__all__ if f'id="advisor.{name}"' not in reference] == []


@pytest.mark.exhaustive
def test_a_page_loads_nothing_from_another_host(built):
    image = r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)'
    style = r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(https?:[^"]+)'
    for page in built.rglob("*.html"):
        assert [
            each for kind in (image, style) for each in re.findall(kind, page.read_text())
        ] == []


@pytest.mark.parametrize("link", ["other.md", "#other", "page.md#other", "index.md#other"])
def test_a_link_to_no_page_or_heading_is_an_error(link, tmp_path):
    pytest.importorskip("zensical", reason="the extra 'docs' is not installed")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "advisor"\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("# A page\n\n## A heading\n")
    text = "# Home\n\n[A heading](page.md#a-heading)\n"
    codes = []
    for page in (text, f"{text}\n[another]({link})\n"):
        (tmp_path / "docs/index.md").write_text(page)
        codes.append(site.build(tmp_path))
    assert codes == [0, 1]


def test_a_page_that_the_navigation_leaves_out_or_misspells_is_an_error():
    assert site.site_files(SETTINGS)
    (line,) = [line for line in SETTINGS.splitlines(keepends=True) if '"start.md"' in line]
    with pytest.raises(site.BrokenSite, match=r"start\.md"):
        site.site_files(SETTINGS.replace(line, ""))
    with pytest.raises(site.BrokenSite, match=r"begin\.md"):
        site.site_files(SETTINGS.replace(line, line + '{"Begin" = "begin.md"},\n'))


def test_a_link_to_a_missing_file_is_an_error_and_one_to_a_folder_is_left_out(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "page.md"
    page.write_text("[the folder](docs), [a file](docs/table.csv), [a site](https://example.com)\n")
    with pytest.raises(site.BrokenSite, match=r"docs/table\.csv"):
        [*site.targets(page)]
    (tmp_path / "docs/table.csv").write_text("1\n")
    assert [*site.targets(page)] == [tmp_path / "docs/table.csv"]
    shown = site.page_markdown(page)
    assert shown == "the folder, [a file](table.csv), [a site](https://example.com)\n"


def test_the_page_of_commands_is_as_their_help():
    assert COMMANDS_PAGE.read_text() == commands_text(), "run `python -m research.commands`"


def test_the_table_of_a_job_files_fields_is_as_the_record_and_the_template():
    text = JOB_FILE_PAGE.read_text()
    shown = filled(text, "job-fields", fields_text())
    assert shown == text, "run `python -m research.job_fields`"


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
