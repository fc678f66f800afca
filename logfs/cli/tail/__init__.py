"""``logfs tail``, and ``logfs cat`` of several partitions: records merged by time, then new ones.

records      the records of one partition: the form of their lines, and their order in a merge
order        the records around the wanted ones, and the last record first
groups       the position of a consumer group
partitions   what the PATHs name, each partition opened where to begin
printer      all of it: the present records, then new ones; flushed, and committed for the group
"""
