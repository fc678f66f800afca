"""What makes a log smaller: retention and compaction."""
