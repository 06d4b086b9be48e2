"""Removes control sequences from text before a terminal shows it."""

import re

# Control characters (ESC and BEL among them), line ends of Unicode, what turns the direction of
# writing, what takes no place, and halves of characters that no encoding has.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean(text: str, *, keep: str = "") -> str:
    r"""`text` with an escape such as ``\x1b`` in place of each character that is no writing.

    Args:
        text: From anywhere: a file, a folder's name, a driver.
        keep: Characters that stay all the same, e.g. line ends in a text of several lines.
    """

    def escaped(match: re.Match[str]) -> str:
        found = match[0]
        return found if found in keep else found.encode("unicode_escape").decode()

    return _OBEYED.sub(escaped, text)
