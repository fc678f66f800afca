"""From the files of a partition directory to a partition; recovery after an unclean stop."""
