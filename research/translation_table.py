"""How far translated profiles are off: the table of docs/other-gpus.md, from committed scores."""

import json
from collections.abc import Mapping
from typing import Any

from advisor.validate.score_tables import markdown, percent
from research.files import BENCHMARKS

ACCURACY = BENCHMARKS / "translation" / "accuracy.json"
HEADINGS = ("what", "steps", "MAPE", "worst", "one ratio for all", "in 90 % interval")

# What was compared with what, in words for readers.
_WORDS: Mapping[str, str] = {
    "h200-141gb to h100-sxm-80gb, GPU's part": "H200 to H100, the GPU's part of a step",
    "h100-sxm-80gb to h200-141gb, GPU's part": "H100 to H200, the same",
    "FP32 language models, step": "H100 to A100, L4 and V100: BERT-large and GPT-2-large, FP32",
    "FP32 language models, backward": "the same, backward pass alone",
    "TF32 vision on a MIG instance": "H100 to an A100's largest MIG instance: ViT-B, ResNet-50",
    "FP16 networks of timm": "H100 to RTX 3090: networks of timm, FP16",
}


def translation_table(scores: list[dict[str, Any]] | None = None) -> str:
    """The table in Markdown.

    Args:
        scores: Of `research.translation_score`; None: the committed ones.
    """
    found = json.loads(ACCURACY.read_text())["scores"] if scores is None else scores
    rows = [
        (
            _WORDS[each["check"]], str(each["steps"]), percent(each["mape"]),
            percent(each["worst"]), percent(each["one_ratio"]), percent(each["inside"]),
        )
        for each in found
    ]  # fmt: skip
    return markdown(HEADINGS, rows)
