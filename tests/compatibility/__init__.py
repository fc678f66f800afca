"""Data directories that released versions have written, and this version opens.

``making`` writes one with the logfs of any interpreter; ``VERSION.tar.xz`` are its results.
"""
