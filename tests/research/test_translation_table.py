"""docs/other-gpus.md says how far translated profiles are off."""

from research.translation_table import HEADINGS, translation_table


def test_each_comparison_is_a_line_with_its_figures():
    score = {
        "check": "FP16 networks of timm", "steps": 4, "mape": 0.131, "bias": 0.1, "worst": 0.19,
        "one_ratio": 0.27, "inside": 1.0,
    }  # fmt: skip
    last = translation_table([score]).splitlines()[-1]
    assert last.endswith("| 4 | 13.1 % | 19.0 % | 27.0 % | 100.0 % |")


def test_every_committed_comparison_has_words():
    text = translation_table()
    assert len(text.splitlines()) > len(HEADINGS)
    assert "RTX 3090" in text
