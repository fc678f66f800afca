"""Random input for everything that reads what others wrote, with the native code under sanitizers.

    make fuzz SECONDS=600                   every target, a share of the time each
    make fuzz ARGS="native --seed 7"        one target, the same cases again
    python -m tests.fuzz --replay           only the corpus, as the tests do

A target makes cases and checks them. A case is bytes, so that one that failed can be kept: it is
written to ``build/fuzz``, and belongs into ``corpus/TARGET`` once the defect is mended.

    runner        starts targets in their own processes, and notes what ends them
    sanitizing    builds the native modules with address and undefined-behaviour sanitizers
    mutation      random changes of bytes, numbers and batches
    native        all functions of native code in logfs.records
    directories   whole data directories: every command, the follower, both kinds of mount
    addresses     names of partitions and points in time
    control       frames of the control protocol, sent to a daemon
    texts         TOML, mount options, settings, lines of JSON
"""
