"""What docs/accuracy.md says of CUDA graphs and torch's compiler, from the committed score."""

from collections.abc import Iterator

from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from research.script_table import Scores, committed

_WHERE = MODE_WORDS | {"alone": "no", "serial": "in turn"}
_WORDS = {"graph": "CUDA graph", "compiled": "torch.compile"}
_COLUMNS = (
    "change", "beside others", "steps", "MAPE", "median", "in the range",
    "MAPE from its own profile", "gain predicted", "gain measured",
)  # fmt: skip


def execution_table() -> str:
    """In Markdown, a line for each change and way of sharing."""
    return markdown(_COLUMNS, rows(committed("executions")["all"]))


def rows(scores: Scores) -> Iterator[tuple[str, ...]]:
    """The cells; gains are medians."""
    for each in scores:
        yield (
            _WORDS[each["execution"]], _WHERE[each["where"]], str(each["steps"]),
            *(percent(each[name]) for name in ("mape", "median", "inside", "own")),
            f"{each['gain']:.2f}x", f"{each['measured_gain']:.2f}x",
        )  # fmt: skip
