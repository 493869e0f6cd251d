"""The address of the repository, and what follows from it for a page that is shown elsewhere."""

import os
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def repository():
    """Without a slash at its end; empty where neither file nor environment has one."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["trjmcmc"]["repository"]
    return (os.environ.get("REPOSITORY") or stated).rstrip("/")


def urls(address):
    """By name, what an index of packages links to."""
    if not address:
        return {}
    return {
        "Repository": address,
        "Documentation": f"{address}/blob/HEAD/docs/index.md",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def with_absolute_links(text, address):
    """A page of Markdown whose links lead into the repository; without one, words without links."""

    def absolute(link):
        picture, words, path = link.groups()
        if not address:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return LINK.sub(absolute, text)
