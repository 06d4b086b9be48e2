"""What docs/accuracy.md says of CUDA graphs and torch's compiler, from the committed score."""

from collections.abc import Iterator
from statistics import mean, median

from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from research.script_table import Scores, committed
from research.sections import joined

_WHERE = MODE_WORDS | {"alone": "no", "serial": "in turn"}
_WORDS = {"graph": "CUDA graph", "compiled": "torch.compile"}
_COLUMNS = (
    "change", "beside others", "steps", "MAPE", "median", "in the range",
    "MAPE from its own profile", "gain predicted", "gain measured",
)  # fmt: skip


_COMPILED = ("compiled, alone", "GPU", "gain predicted", "gain measured")
_LATER = "torch.compile, models drawn later, as foretold"


def execution_table() -> str:
    """In Markdown: a line for each change and way of sharing; then each compiled job alone."""
    score = committed("executions")
    lines = [*rows(score["all"]), later(score["foretold"])]
    return joined(markdown(_COLUMNS, lines), markdown(_COMPILED, compiled(score["alone"])))


def rows(scores: Scores) -> Iterator[tuple[str, ...]]:
    """The cells; gains are medians."""
    for each in scores:
        yield (
            _WORDS[each["execution"]], _WHERE[each["where"]], str(each["steps"]),
            *(percent(each[name]) for name in ("mape", "median", "inside", "own")),
            f"{each['gain']:.2f}x", f"{each['measured_gain']:.2f}x",
        )  # fmt: skip


def later(steps: Scores) -> tuple[str, ...]:
    """Jobs alone that were drawn and measured when all else was fitted."""
    errors = [abs(each["predicted_s"] / each["measured_s"] - 1) for each in steps]
    inside = mean(each["low_s"] <= each["measured_s"] <= each["high_s"] for each in steps)
    gains = (median(each["eager_s"] / each[name] for each in steps)
             for name in ("predicted_s", "measured_s"))  # fmt: skip
    return (
        _LATER, _WHERE["alone"], str(len(steps)), percent(mean(errors)), percent(median(errors)),
        percent(inside), "-", *(f"{gain:.2f}x" for gain in gains),
    )  # fmt: skip


def compiled(alone: Scores) -> list[tuple[str, ...]]:
    """Each job that was compiled, the one that gained most first."""
    those = [each for each in alone if each["execution"] == "compiled"]
    those.sort(key=lambda each: each["measured_s"] / each["eager_s"])
    return [
        (
            each["workload"], each["gpu"],
            "{:.2f}x ({:.2f}-{:.2f})".format(
                *(each["eager_s"] / each[name] for name in ("predicted_s", "high_s", "low_s"))
            ),
            f"{each['eager_s'] / each['measured_s']:.2f}x",
        )
        for each in those
    ]  # fmt: skip
