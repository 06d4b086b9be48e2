"""What a measuring command says of words that it refuses, without the processes it would start."""

from advisor.errors import AdvisorError


def refused(run, words, capsys):
    """Exit code and words on stderr of ``run(words)``, as its inner process would end with them."""
    try:
        code = run(list(map(str, words)))
    except AdvisorError as error:
        return error.exit_code, str(error)
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr().err
