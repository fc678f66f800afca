"""From an address to bytes: grammar, look-ups, cursors, open files."""
