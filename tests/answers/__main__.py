"""Write `answers.json` again, or say how answers differ from it.

python -m tests.answers                  # writes it
python -m tests.answers --check [WORD]   # compares; of questions with that word only

Write them again only where answers are meant to change, and look through what changed.
"""

import sys

from tests.answers.asking import ask
from tests.answers.differences import differences, to_store
from tests.answers.questions import APART, HERE
from tests.answers.rows import rows_of
from tests.answers.stored import read, write


def main() -> None:
    """Write all answers; or compare them, and exit with 1 where one differs."""
    words = sys.argv[1:]
    if not words:
        write({question: to_store(rows_of(question, ask(question))) for question in HERE + APART})
        return
    if words[0] != "--check" or len(words) > 2:
        sys.exit(__doc__)
    stored, differ = read(), 0
    for question, rows in stored.items():
        if " ".join(words[1:]) in question:
            lines = list(differences(question, rows, rows_of(question, ask(question))))
            differ += bool(lines)
            print("\n".join([f"advisor {question}", *lines]) if lines else ".", flush=True)
    sys.exit(f"{differ} answers differ" if differ else 0)


if __name__ == "__main__":
    main()
