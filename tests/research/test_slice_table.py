"""What the document says of MIG slices is what the committed scores say."""

from research.slice_table import misfits_text, slice_tables


def score(what, **numbers):
    return {"what": what, "unknown": 0, "unknown_said": None} | numbers


SIZES = score("alone on slices of every size", misfits=1200, recall=0.99, fits=3000,
              false_alarms=0.001)  # fmt: skip
CLOSE = score("alone on slices within 15 % of the need", misfits=50, recall=1.0, fits=20,
              false_alarms=0.1)  # fmt: skip
TRIED = score("alone on a smaller card, run", misfits=20, recall=1.0, fits=17,
              false_alarms=11 / 17)  # fmt: skip
UNTRIED = score("alone on a smaller card, run", misfits=0, recall=None, fits=0, false_alarms=None)


def test_what_is_said_not_to_fit_is_counted_over_all_gpus():
    said = misfits_text([SIZES, CLOSE, TRIED, SIZES, UNTRIED])
    assert "of 2,400 that do not fit 2,376 are said not to, of 6,000 that do 6" in said
    assert "50 of 50 and 2 of 20" in said
    assert "of 37 jobs tried so close to the edge" in said
    assert "20 of 20 that ran out and 11 of 17 that did not" in said


def test_every_way_to_know_a_job_has_a_line_with_its_errors_on_each_slice():
    table, memory = slice_tables().split("\n\n")
    headings, _, *rows = (line.strip("| ").split(" | ") for line in table.splitlines())
    assert {len(each) for each in rows} == {len(headings)}
    assert rows[0][0] == "nvidia-smi's memory utilisation"
    assert any("kernel trace" in each[0] for each in rows)
    assert memory.startswith("Whether a job fits")
