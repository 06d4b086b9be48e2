"""Writes counts and articles for English sentences."""

_SIBILANTS = ("s", "x", "sh")
_VOWELS = "aeiou"
# Letters whose names begin with a vowel: an A100, an H200, an NVIDIA H200, an RTX
# 4090; but a B200, a GH200, a Tesla V100.
_SPOKEN_WITH_VOWEL = "aefhilmnorsx"


def counted(number: float, noun: str) -> str:
    """So many of `noun`, e.g. ``"1 job"``, ``"1,200 memory slices"``, ``"0.5 epochs"``.

    Args:
        number: How many.
        noun: In the singular; of several words the last is counted.
    """
    said = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{said} {noun if number == 1 else _plural(noun)}"


def is_or_are(number: int) -> str:
    """The verb for so many."""
    return "is" if number == 1 else "are"


def with_article(gpu: str) -> str:
    """`gpu`, a name that is read out letter by letter, after its article: ``"an h200-141gb"``."""
    return f"{'an' if gpu[:1].lower() in _SPOKEN_WITH_VOWEL else 'a'} {gpu}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(_SIBILANTS) else "s")
