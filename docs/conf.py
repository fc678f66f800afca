"""The configuration of Sphinx for the tree that ``docs.staging`` makes."""

from logfs import __version__

project = "logfs"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
smartquotes = False  # "--option" stays what it is
highlight_language = "none"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"logfs {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": False}
