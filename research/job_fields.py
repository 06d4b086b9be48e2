"""Writes the table of a job file's fields into docs/files.md, from the record and the template.

python -m research.job_fields
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from advisor.files.writing import write_whole
from advisor.schemas import schema_document
from research.files import ROOT, filled
from research.score_tables import markdown

FILE = ROOT / "docs" / "files.md"
_TEMPLATE = ROOT / "advisor" / "workload" / "templates" / "jobs.toml"
_FIELD = re.compile(r"(?:# )?(\w+) = (.+?)  +# (.+)")
_HEADINGS = ("field", "type", "unit", "default", "example", "meaning")
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list of words",
    "object": "table of text",
}
_UNITS = {"protect": "share"}


def fields_text() -> str:
    """Return the table; each field needs an example and a meaning in the template."""
    examples = {match[1]: (match[2], match[3]) for match in _FIELD.finditer(_TEMPLATE.read_text())}
    return markdown(_HEADINGS, _rows(schema_document("jobs")["$defs"]["_Entry"], examples))


def _rows(
    entry: Mapping[str, Any], examples: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, ...]]:
    for name, schema in entry["properties"].items():
        kinds = [each["type"] for each in schema.get("anyOf", [schema])]
        example, meaning = examples[name]
        default = "needed" if name in entry["required"] else _default(schema["default"])
        unit = _UNITS.get(name, "s" if name.endswith("_s") else "-")
        words = " or ".join(_TYPES[kind] for kind in kinds if kind != "null")
        yield f"`{name}`", words, unit, default, f"`{example}`", meaning


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "-" if value is None else f"`{value:g}`"


if __name__ == "__main__":
    write_whole(FILE, filled(FILE.read_text(), "job-fields", fields_text()))
