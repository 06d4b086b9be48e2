"""Files that users and the advisor write: read once and strictly, written whole or not at all."""
