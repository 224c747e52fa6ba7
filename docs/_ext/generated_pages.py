"""Pages made from the code before each build: one for each environment, policy and room, and the command line.

They are written to docs/generated, which is no part of the repository. A page that nothing stands behind any more is
removed, and one that has not changed is not touched, so that it need not be built again.
"""

from pathlib import Path
from typing import Any

import command_pages
import copied_pages
import environment_pages
import league_page
import name_pages
import policy_pages
from concept_pictures import draw_all
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}


def write(app: Sphinx) -> None:
    """Write all generated pages and pictures."""
    folder = Path(app.srcdir) / "generated"
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    ideas = Path(app.srcdir) / "policies" / "ideas"
    pages: dict[str, str] = {}
    pages |= environment_pages.pages(folder / "pictures")
    pages |= policy_pages.pages(folder / "pictures", ideas)
    pages |= command_pages.pages()
    pages |= name_pages.pages()
    pages |= copied_pages.pages(Path(app.srcdir).parent)
    pages["results/league"] = league_page.page(Path(app.srcdir) / "results" / "league")
    draw_all(folder / "pictures")
    for name, text in pages.items():
        write_if_new(folder / f"{name}.md", text)
    for room in ("environments", "policies", "reference", "results", "project"):
        for page in (folder / room).glob("*.md"):
            if f"{room}/{page.stem}" not in pages:
                page.unlink()


def write_if_new(file: Path, text: str) -> None:
    """Write a file unless it holds this text already."""
    if not file.exists() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
