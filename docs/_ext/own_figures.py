"""Shows the figures of `fb.plotting` in the gallery: they are no figures of pyplot, so nothing would find them."""

from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def own_figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the variable `figure` of an example, if it is a figure that pyplot does not know, once."""
    variables = block_vars["example_globals"]
    figure = variables.get("figure")
    known = [pyplot.figure(number) for number in pyplot.get_fignums()]
    if not isinstance(figure, Figure) or figure in known or figure is variables.get("_shown"):
        return ""
    file = next(block_vars["image_path_iterator"])
    figure.savefig(file, dpi=120)
    variables["_shown"] = figure
    return str(figure_rst([file], gallery_conf["src_dir"]))
