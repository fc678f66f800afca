"""Bytes to records and back: pure, no files, no clock.

``record`` and ``encoded`` are the vocabulary, ``compression`` the four codecs, ``batch`` the header
and whole batches, ``_native`` every loop over bytes: lines to batches, batches to renderings, the
index rules. Import from the modules.
"""
