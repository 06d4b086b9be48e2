"""Asks a Prometheus server for what it recorded, through its HTTP API.

It needs the standard library alone. A redirect is refused: it may lead to another host, which would
get the token.
"""

import os
import re
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from math import isfinite
from time import monotonic
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from advisor.errors import AdvisorError, InvalidInput, shortened
from advisor.workload.history import DCGM_FIELDS, Quantity, Series, in_range
from advisor.workload.reading import MOST_BYTES, parse_json

TOKEN = "ADVISOR_PROMETHEUS_TOKEN"
MOST_POINTS = 11_000
"""Of a series in one answer: Prometheus refuses more."""

# Until the server answers, and until the last byte of an answer.
_ANSWER_S, _WHOLE_S = 30.0, 120.0
_PIECE = 2**16
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, req: Request, *_: Any, **__: Any) -> None:
        """Follow none, so that the answer is an `HTTPError` with the other address."""


def check_address(address: str) -> None:
    """Check that `address` is one of an HTTP server, without a password.

    Raises:
        InvalidInput: It is not.
    """
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = None
    if not valid or parts.query or parts.fragment:
        raise InvalidInput(
            f"expected an address such as http://prometheus:9090, got {shortened(address)}"
        )
    if parts.username is not None:
        raise InvalidInput(
            f"the address has a user or password, which others may read. Set {TOKEN} instead."
        )


def is_metric(name: str) -> bool:
    """Return whether Prometheus can have a metric, or a label, of that `name`."""
    return _NAME.fullmatch(name) is not None


def recorded_series(
    address: str, start_s: float, end_s: float, interval_s: float,
    where: Mapping[str, str], step_metric: str | None,
) -> list[Series]:  # fmt: skip
    """Return the series of GPUs that have the labels `where`, and those of `step_metric`.

    Raises:
        AdvisorError: The server does not answer, or refuses.
        InvalidInput: The address is not Prometheus's, or the answer is too large.
    """
    check_address(address)
    selector = ",".join(f'{name}="{_escaped(value)}"' for name, value in where.items())
    series: list[Series] = []
    for metric, (quantity, factor) in DCGM_FIELDS.items():
        query = metric + (f"{{{selector}}}" if selector else "")
        series += _range(address, query, (start_s, end_s, interval_s), (quantity, factor))
    if step_metric is not None:
        # An application has other labels than the exporter.
        series += _range(address, step_metric, (start_s, end_s, interval_s), ("step_s", 1.0))
    return [each for each in series if each.points]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _series(quantity: Quantity, labels: Any, points: Any, factor: float) -> Series:
    numbers = ((float(at_s), float(value) * factor) for at_s, value in points)
    fitting = [
        (at_s, fit)
        for at_s, value in numbers
        if isfinite(value) and (fit := in_range(quantity, value)) is not None
    ]
    return Series(quantity, {str(name): str(value) for name, value in labels.items()}, fitting)


def _range(
    address: str, query: str, times_s: tuple[float, float, float], field: tuple[Quantity, float]
) -> list[Series]:
    """Return the series that `query` selects, from start to end at an interval."""
    words = dict(zip(("start", "end", "step"), times_s, strict=True)) | {"query": query}
    url = f"{address.rstrip('/')}/api/v1/query_range?{urlencode(words)}"
    where = urlsplit(address).netloc
    remedy = "Pass the address of Prometheus itself, e.g. http://prometheus:9090."
    answer = parse_json(_get(url, where), f"the answer of {where}", remedy)
    try:
        rows = [(row["metric"], row["values"]) for row in answer["data"]["result"]]
        return [_series(field[0], labels, points, field[1]) for labels, points in rows]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInput(f"{where}: its answer is not Prometheus's. {remedy}") from None


def _get(url: str, where: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json"})
    if token := os.environ.get(TOKEN):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with build_opener(_NoRedirects).open(request, timeout=_ANSWER_S) as response:
            return _body(response, where)
    except HTTPError as error:
        with error:
            raise AdvisorError(f"{where}: {_refusal(error)}") from None
    except TimeoutError:
        raise AdvisorError(
            f"{where}: no answer in {_ANSWER_S:g} s. Check the address, or choose a shorter range."
        ) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise AdvisorError(
            f"{where}: {words}. Check the address, and that Prometheus runs there."
        ) from None


def _body(response: HTTPResponse, where: str) -> bytes:
    until_s, pieces, size = monotonic() + _WHOLE_S, list[bytes](), 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        narrow = "Choose a shorter range, a longer --interval, or fewer jobs by --match."
        if size > MOST_BYTES:
            raise InvalidInput(
                f"{where}: its answer has more than {MOST_BYTES // 2**20} MiB. {narrow}"
            )
        if monotonic() > until_s:
            raise AdvisorError(f"{where}: its answer takes more than {_WHOLE_S:g} s. {narrow}")
    return b"".join(pieces)


def _refusal(error: HTTPError) -> str:
    """Return why a server refused a query, and what to do."""
    if error.code in (401, 403):
        return f"HTTP {error.code}: it refuses access. Set {TOKEN} to a token that it accepts."
    if 300 <= error.code < 400:
        other = shortened(error.headers.get("Location", "another address").partition("?")[0])
        return f"HTTP {error.code}: it redirects to {other}. Pass the address that answers itself."
    reason = ""
    try:
        reason = str(parse_json(error.read(_PIECE), "")["error"])
    except (InvalidInput, OSError, HTTPException, KeyError, TypeError):
        reason = str(error.reason)
    return f"HTTP {error.code}: {shortened(reason)}. Check the address and the options."
