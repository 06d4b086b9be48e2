"""The advisor command."""


def main() -> None:
    """Run the command line."""
