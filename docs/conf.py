"""How the site is built: `scripts/docs` does it, offline, with warnings as errors."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "fedbandit-envs"
author = "the fedbandit-envs developers"
version = release = version_of("fedbandit-envs")
html_title = f"fedbandit-envs {version}"

extensions = [
    "generated_pages",  # in _ext, as the next two
    "plain_docstrings",
    "offline_mathjax",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext", "examples", "policies/ideas", "results/league", "generated/gallery/*.ipynb"]
nitpicky = False  # docstrings name classes of other libraries, whose pages are not here

# The theme's own fonts and icons are part of the pages: nothing is fetched from elsewhere.
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # a summary is fetched from the page, and a browser refuses that for local files
templates_path: list[str] = []

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "code"  # docstrings write names between single backticks

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "generated/gallery",
    "image_scrapers": ("own_figures.own_figures",),
    "filename_pattern": r"plot_",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 3600,  # times differ from build to build
    "write_computation_times": False,  # its page would load scripts from elsewhere
    "remove_config_comments": True,
    "show_signature": False,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "notebook_extensions": set(),
    "nested_sections": False,
}
suppress_warnings = ["config.cache"]
