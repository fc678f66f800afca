"""Everything that changes a log: appending, rolling, flushing, truncating; lines of open files."""
