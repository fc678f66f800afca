"""The documents of logfs as a site: ``make docs``, ``python -m docs [DIRECTORY]``.

    staging     the documents of this tree, and those that are made, as one tree for Sphinx
    commands    a page for each man page, from the same blocks
    links       checks all links of the built pages
    conf        the configuration of Sphinx
    contents    what the site contains, in the order of its side bar
    library     which public names the reference shows
    internals/  a page for each subsystem: its data structures and its invariants

The documents keep their places, so their links are the same here as in a checkout. Only README.md
becomes the first page, index.html. Sphinx, MyST and Furo are the extra ``docs``.
"""
