"""Lines that become records: of open files that append, of whole texts, of regular files."""
