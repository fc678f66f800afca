"""The commands: their options, their ``--help`` and their output. ``main`` has the list.

Work that takes more than a screen is in its own module, one folder up.
"""
