"""Pages that are files of the repository: they have one home, and are shown here too."""

import re
from pathlib import Path

FILES = {"security": "SECURITY.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
TITLES = {"security": "Security and trust", "contributing": "Contributing", "changelog": "Changelog"}


def pages(root: Path) -> dict[str, str]:
    """The pages by name; links to files of the repository become plain names, because the files are not here."""
    return {f"project/{name}": page(name, (root / file).read_text()) for name, file in FILES.items()}


def page(name: str, text: str) -> str:
    """The text below a title for readers of the site."""
    text = re.sub(r"^# .*\n", f"# {TITLES[name]}\n", text, count=1)
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)
