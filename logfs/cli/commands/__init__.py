"""The commands: what each takes, its ``--help``, and what it prints; ``main`` says which there are.

A module here is for somebody who wants to know what a command does. What takes more than a screen
to do has a module of its own one folder up, named after the work.
"""
