"""Shows the figures of the gallery: those of `fb.plotting`, which pyplot does not know, and those of pyplot.

Their alternative text is the first sentence of the example.
"""

import re
from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def own_figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the variable `figure` of an example and all figures of pyplot, each once."""
    variables = block_vars["example_globals"]
    shown = variables.setdefault("_shown", [])
    figures = [variables.get("figure"), *(pyplot.figure(number) for number in pyplot.get_fignums())]
    parts = []
    for figure in figures:
        if isinstance(figure, Figure) and not any(figure is one for one in shown):
            file = next(block_vars["image_path_iterator"])
            figure.savefig(file, dpi=120)
            shown.append(figure)
            words = alternative_text(str(variables.get("__doc__")))
            parts.append(str(figure_rst([file], gallery_conf["src_dir"], fig_titles=words)))
    pyplot.close("all")
    return "".join(parts)


def alternative_text(docstring: str) -> str:
    """The first sentence below the title of an example.

    >>> alternative_text("\\nDropout\\n=======\\n\\nReports get lost. How\\nmuch does that cost?")
    'Reports get lost.'
    """
    told = " ".join(docstring.split("\n\n", 1)[-1].split())
    return re.split(r"(?<=[.?!])\s", told)[0]
