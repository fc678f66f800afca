"""What a partition consists of: its segments, the table of them, what readers see of them."""
