"""Text that a terminal shows and does not obey: names of files may hold any character."""


def printable(text: str) -> str:
    """Escape the characters that do not print: line breaks and terminal sequences."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
