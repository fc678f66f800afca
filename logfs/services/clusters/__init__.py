"""Logs that are copies of topics of a cluster, or are sent to one; ``logfs.kafka`` uses them.

mirrors    how mirrors are made, cut and ended
batches    a cursor over stored batches, for programs that send them as they are
"""
