"""Which variables and options of a job nobody else is to see."""

import re
from collections.abc import Iterator, Mapping, Sequence

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


def masked_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """`environment` for others to see: values whose name says that they are secret are hidden."""
    for name, value in environment.items():
        yield name, "***" if is_secret(name) else value


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
