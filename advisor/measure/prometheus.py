"""Asks a Prometheus server for what it recorded, through its HTTP API.

It needs the standard library alone. A redirect is refused: it may lead to another host, which would
get the token.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from itertools import product
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from advisor.errors import AdvisorError, InvalidInput, shortened
from advisor.files.reading import MOST_BYTES, parse_json
from advisor.measure.history import DCGM_FIELDS, Series, renamed, series_of_answer

TOKEN = "ADVISOR_PROMETHEUS_TOKEN"
MOST_POINTS = 11_000
"""Most points of a series in one answer; Prometheus refuses more."""

# Until the server answers, and until the last byte of an answer.
_ANSWER_S, _WHOLE_S = 30.0, 120.0
_PIECE = 2**16
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_REMEDY = "Pass the address of Prometheus itself, e.g. http://prometheus:9090."


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, req: Request, *_: Any, **__: Any) -> None:
        """Follow none, so that the answer is an `HTTPError` with the other address."""


def is_metric(name: str) -> bool:
    """Return whether Prometheus can have a metric, or a label, of that `name`."""
    return _NAME.fullmatch(name) is not None


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


def recorded_series(
    address: str,
    start_s: float,
    end_s: float,
    interval_s: float,
    where: Mapping[str, str],
    step_metric: str | None,
) -> list[Series]:
    """Return the series of GPUs that have the labels `where`, and those of `step_metric`.

    `check_address` has to accept the address.

    Raises:
        AdvisorError: The server does not answer, or refuses.
        InvalidInput: The answer is not Prometheus's, or too large.
    """
    server, selectors = urlsplit(address).netloc, list(_selectors(where))
    queries = {
        " or ".join(metric + selector for selector in selectors): field
        for metric, field in DCGM_FIELDS.items()
    }
    if step_metric is not None:
        queries[step_metric] = "step_s", 1.0  # an application has other labels than the exporter
    history: list[Series] = []
    for query, field in queries.items():
        words = {"query": query, "start": start_s, "end": end_s, "step": interval_s}
        url = f"{address.rstrip('/')}/api/v1/query_range?{urlencode(words)}"
        answer = parse_json(_get(url, server), f"the answer of {server}", _REMEDY)
        try:
            history += series_of_answer(answer, field)
        except (LookupError, TypeError, ValueError):
            raise InvalidInput(f"{server}: its answer is not Prometheus's. {_REMEDY}") from None
    return history


def _selectors(where: Mapping[str, str]) -> Iterator[str]:
    """Yield selectors of the series for which `has_labels` is true of `where`."""
    choices = (
        [{renamed(name): value}, {renamed(name): "", name: value}] for name, value in where.items()
    )
    for choice in product(*choices):
        labels = {name: value for part in choice for name, value in part.items()}
        pairs = (f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in labels.items())
        yield f"{{{','.join(pairs)}}}" if labels else ""


def _get(url: str, server: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json"})
    if token := os.environ.get(TOKEN):
        request.add_header("Authorization", f"Bearer {token}")
    content, until_s = bytearray(), monotonic() + _WHOLE_S
    narrow = "Choose a shorter range, a longer --interval, or fewer jobs by --match."
    try:
        with build_opener(_NoRedirects).open(request, timeout=_ANSWER_S) as response:
            while piece := response.read1(_PIECE):
                content += piece
                if len(content) > MOST_BYTES:
                    most = f"more than {MOST_BYTES // 2**20} MiB"
                    raise InvalidInput(f"{server}: its answer has {most}. {narrow}")
                if monotonic() > until_s:
                    raise AdvisorError(
                        f"{server}: its answer takes more than {_WHOLE_S:g} s. {narrow}"
                    )
    except HTTPError as error:
        with error:
            raise AdvisorError(f"{server}: {_refusal(error)}") from None
    except TimeoutError:
        problem = f"no answer in {_ANSWER_S:g} s. Check the address, or choose a shorter range"
        raise AdvisorError(f"{server}: {problem}.") from None
    except (HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        problem = f"{words}. Check the address, and that Prometheus runs there"
        raise AdvisorError(f"{server}: {problem}.") from None
    return bytes(content)


def _refusal(error: HTTPError) -> str:
    """Return why a server refused a query, and what to do."""
    if error.code in (401, 403):
        return f"HTTP {error.code}: it refuses access. Set {TOKEN} to a token that it accepts."
    if 300 <= error.code < 400:
        other = shortened(error.headers.get("Location", "another address").partition("?")[0])
        return f"HTTP {error.code}: it redirects to {other}. Pass the address that answers itself."
    try:
        reason = str(parse_json(error.read(_PIECE), "")["error"])
    except (InvalidInput, OSError, HTTPException, KeyError, TypeError):
        reason = str(error.reason)
    return f"HTTP {error.code}: {shortened(reason)}. Check the address and the options."
