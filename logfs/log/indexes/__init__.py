"""The index files beside a segment: their entries (pure) and the files that hold them."""
