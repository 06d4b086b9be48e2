"""Which variables and options of a job nobody else is to see."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.workload.job import Job

_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
# Whole words of an option: --max-tokens and --tokenizer are of every language model.
_SECRET_OPTION = re.compile(
    "--?([^=]*[-_])?(api)?(key|token|secret|passw[a-z]*|credentials?)(=.*)?", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    return _SECRET.search(name) is not None


def secret_options(command: Sequence[str]) -> tuple[str, ...]:
    """The options in `command` whose names say that their values are secret, without these."""
    found = (word for word in command if _SECRET_OPTION.fullmatch(word))
    return tuple(dict.fromkeys(word.partition("=")[0] for word in found))


def masked_words(command: Sequence[str]) -> Iterator[str]:
    """`command` for others to see: values of options that are secret by name are hidden."""
    hides_next = False
    for word in command:
        secret = _SECRET_OPTION.fullmatch(word) is not None
        if secret and "=" in word:
            yield f"{word.partition('=')[0]}=***"
        else:
            yield "***" if hides_next and not word.startswith("-") else word
        hides_next = secret and "=" not in word


def masked_line(line: str) -> str:
    """A command in one line for others to see, as `masked_words` has it."""
    return " ".join(masked_words(line.split(" ")))


def secrets_held(
    jobs: "Iterable[Job]", *, variables: bool, text: str | None = None
) -> Iterator[str]:
    """A line to warn with, where a plan of `jobs` holds secrets.

    Args:
        jobs: Jobs of the plan.
        variables: Whether the plan holds them; else they are left to whoever runs it.
        text: Of the plan, where not every form of it holds the jobs' commands.
    """
    every = (job.profile.workload.script for job in jobs)
    scripts = [each for each in every if each]
    options = (name for each in scripts for name in secret_options(each.command))
    names = [name for name in options if text is None or name in text]
    if variables:
        names += [name for each in scripts for name in filter(is_secret, each.environment)]
    if names:
        yield (
            f"the plan holds the values of {', '.join(dict.fromkeys(names))}: keep it to yourself, "
            f"or take them out of the job file and set variables where the plan is run; jobs "
            f"inherit them."
        )
