"""The requests of the kernel.

topics     changes of topics, and of stored owners and modes: one at a time
refused    the requests that are always refused
served     all others: decode, call, translate, reply
"""
