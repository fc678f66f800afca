"""Deleting old records: by the limits of a topic or of the directory, and by request.

holds        records that wait to be forwarded to a cluster, and are kept
logs         which segments a log deletes by itself, and deleting them
directory    the limits of the data directory: the largest topics give up segments
trimming     deleting the records before a point, on request
"""
