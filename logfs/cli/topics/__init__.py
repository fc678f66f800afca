"""Topics, by whoever has them.

facts: what can be known of a topic, and done with it. stored: in a data directory that nobody
serves. remote: by the daemon, through its socket. mounted: through the mount. named: which
partitions a PATH names.
"""
