"""The page's chart of an answer as a picture, drawn without a browser."""

from io import BytesIO, StringIO
from typing import Literal

import altair as alt

from advisor.plan.objectives import OBJECTIVES
from advisor.plan.values import Recommendation
from advisor.report.charts import ways_chart
from advisor.report.recommendation import instruction

PictureForm = Literal["svg", "png"]
"""Forms of a picture; each is the suffix of its files."""

_WIDTH_PX = 640


def ways_picture(advised: Recommendation, form: PictureForm) -> bytes:
    """Return the chart of each way to share at its best, with a title and how to read it."""
    measure = OBJECTIVES[advised.ranked_by].measure
    title = alt.TitleParams(
        f"{instruction(advised.best, [job.name for job in advised.jobs])} ({advised.gpu.key})",
        subtitle=f"{measure}; line: 90 % interval; hollow: estimated; band: ties with the best",
        anchor="start",
        frame="group",
        offset=12,
        limit=_WIDTH_PX,
    )
    chart = ways_chart(advised).properties(width=_WIDTH_PX, title=title)
    chart = chart.configure(background="white")
    if form == "svg":
        chart.save(text := StringIO(), format=form)
        return text.getvalue().encode()
    chart.save(image := BytesIO(), format=form, scale_factor=2)
    return image.getvalue()
