"""Tests of ``logfs.fs.handover``."""
