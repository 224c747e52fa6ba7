"""A figure as an SVG element of a web page: small, without names that other figures use too, and open to scripts.

Text stays text, black becomes the colour of the page's text, and each policy's parts are groups with the class "series"
and the policy's key, so that a page can hide them. Axes carry their place and their limits as attributes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np

from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.reports.canvas import content
from fedbandit_envs.reports.series import series_key

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_KEPT_OUT = ("metadata", "style")  # metadata tell a date and matplotlib's name; a style is for the whole page
_ROUNDED = ("d", "x", "y", "transform")
_CLOSE = 0.05  # points of the plot, 72 to an inch: a line this far off looks the same, also when zoomed tenfold
_FEW_POINTS = 8  # a shorter path is left as it is
_FOUND_BY_SCRIPTS = r"series-|axes_|legend_|[xy]tick_|matplotlib\.axis"  # what the ids of these groups begin with
_NUMBER = re.compile(r"-?\d+\.\d+")


def inline_svg(figure: "Figure", name: str, labels: list[str], words: str) -> str:
    """The figure as an SVG element.

    Args:
        figure: what to show.
        name: a name of letters, digits and hyphens that no other figure of the page has.
        labels: the labels of the policies that may be in the figure.
        words: what the figure shows, for readers who can't see it.
    """
    root = ElementTree.fromstring(content(figure, ".svg"))
    keys = {series_key(label): label for label in labels}
    collections = {artist.get_gid() for axes in figure.axes for artist in axes.collections}
    shapes = {f"#{path.get('id')}": path for path in root.iter() if _local(path.tag) == "path" and path.get("id")}
    for group in list(root.iter()):
        if group.get("id") is not None and group.get("id") in collections:
            _expand_collection(group, shapes)
    _tell_axes(root, figure)
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(child.tag) in _KEPT_OUT]:
            parent.remove(child)
    used = {_named(value) for element in root.iter() for value in element.attrib.values() if "#" in value}
    for element in root.iter():
        if element.get("id") not in used and not re.match(_FOUND_BY_SCRIPTS, element.get("id", "")):
            element.attrib.pop("id", None)
        _clean(element, name, keys)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"class": "plot", "role": "img", "aria-label": words}
    return ElementTree.tostring(root, encoding="unicode")


def _named(value: str) -> str:
    """The name in a reference such as "#clip" or "url(#clip)"."""
    return value.removeprefix("url(").removeprefix("#").removesuffix(")")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _expand_collection(group: ElementTree.Element, shapes: Mapping[str, ElementTree.Element]) -> None:
    """Turn bands and bars into plain paths: a script can't read the points of matplotlib's references to a shape."""
    for use in [use for use in group.iter() if _local(use.tag) == "use"]:
        shape = shapes[use.attrib[next(key for key in use.attrib if _local(key) == "href")]]
        x, y = float(use.get("x", "0")), float(use.get("y", "0"))
        style = "; ".join(part for part in (shape.get("style"), use.get("style")) if part)
        use.tag, use.attrib = shape.tag, {"d": _moved(shape.get("d", ""), x, y), "style": style}
    for parent in list(group.iter()):
        for child in [child for child in parent if _local(child.tag) == "defs"]:
            parent.remove(child)


def _moved(path: str, x: float, y: float) -> str:
    """The path with all its points moved; matplotlib writes absolute points only."""
    return re.sub(r"(-?[\d.]+)\s+(-?[\d.]+)", lambda pair: f"{float(pair[1]) + x:.2f} {float(pair[2]) + y:.2f}", path)


def _tell_axes(root: ElementTree.Element, figure: "Figure") -> None:
    """Write the place of each axes, and the values at their ends, as attributes of their group."""
    width, height = (72 * side for side in figure.get_size_inches())
    groups = {element.get("id"): element for element in root.iter() if element.get("id")}
    for number, axes in enumerate(figure.axes, start=1):
        box = axes.get_position()
        corners = (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
        group = groups[f"axes_{number}"]
        group.set("data-box", " ".join(f"{side:.2f}" for side in corners))
        group.set("data-x", _ends(axes.xaxis))
        group.set("data-y", _ends(axes.yaxis))


def _ends(axis: "Axis") -> str:
    """The scale and the limits of an axis; "names" if a script can't make new ticks for it."""
    from matplotlib.ticker import FixedLocator

    low, high = axis.get_view_interval()
    scale = axis.get_scale()
    known = scale in ("linear", "log") and not isinstance(axis.get_major_locator(), FixedLocator)
    return f"{scale if known else 'names'} {low:.8g} {high:.8g}"


def _clean(element: ElementTree.Element, name: str, keys: Mapping[str, str]) -> None:
    element.tag = _local(element.tag)
    element.tail = None
    if element.tag not in ("text", "tspan", "title"):
        element.text = None
    element.attrib = dict(_attributes(element, name))
    part = re.fullmatch(rf"{name}-series-([0-9a-f]+)-\d+(?:-text|-handle)?", element.get("id", ""))
    if part and part[1] in keys:
        del element.attrib["id"]
        element.attrib |= {"class": "series", "data-policy": part[1]}
        title = ElementTree.Element("title")
        title.text = keys[part[1]]
        element.insert(0, title)
    elif "-legend_" in element.get("id", ""):
        element.set("class", "legend")


def _attributes(element: ElementTree.Element, name: str) -> Iterator[tuple[str, str]]:
    for key, value in element.attrib.items():
        key = _local(key)
        if key == "id":
            value = f"{name}-{value}"
        elif key == "href":
            value = f"#{name}-{value[1:]}"
        elif key == "clip-path":
            value = value.replace("url(#", f"url(#{name}-")
        elif key == "style":
            value = _style(value)
        if key in _ROUNDED:
            value = " ".join(_NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value).split())
        if key == "d":
            value = _thinned(value)
        yield key, value


def _style(value: str) -> str:
    """The style with the page's font and text colour, and without a white ground."""
    value = re.sub(r"(font:[^;]*?[\d.]+px)[^;]*", r"\1 var(--plot-font)", value)
    value = re.sub(r"font-family:[^;]*(; )?", "", value)
    return value.replace("#000000", "currentColor").replace("fill: #ffffff", "fill: none")


def _thinned(path: str) -> str:
    """The path without points that nobody could see: those on the straight line between their neighbours."""
    if not re.fullmatch(r"M [-\d. L]+( z)?", path) or path.count(" L ") < _FEW_POINTS:
        return path
    points = np.array(re.findall(r"-?[\d.]+", path), dtype=float).reshape(-1, 2)
    kept = points[_corners(points)]
    # In a path, points after the first are joined by lines even without the letter L.
    return "M " + " ".join(f"{x:.6g} {y:.6g}" for x, y in kept) + (" z" if path.endswith("z") else "")


def _corners(points: FloatArray) -> list[int]:
    """The places of the points (n, 2) that a line must pass to stay close to all of them, by Douglas and Peucker."""
    kept, waiting = {0, len(points) - 1}, [(0, len(points) - 1)]
    while waiting:
        first, last = waiting.pop()
        inside = points[first + 1 : last]
        if not len(inside):
            continue
        along = points[last] - points[first]
        length = float(np.hypot(*along))
        away = inside - points[first]
        if length:
            share = np.clip(away @ along / length**2, 0, 1)
            away = away - share[:, None] * along
        distances = np.hypot(away[:, 0], away[:, 1])
        if distances.max() > _CLOSE:
            corner = first + 1 + int(distances.argmax())
            kept.add(corner)
            waiting += [(first, corner), (corner, last)]
    return sorted(kept)
