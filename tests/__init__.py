"""The tests; the folders mirror those of ``logfs``."""
