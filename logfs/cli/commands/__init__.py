"""The commands: their options, their ``--help`` and their output. ``main`` has the list.

Work that takes more than a screen is in a module of its own, one folder up.
"""
