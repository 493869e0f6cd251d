"""Words of README, docs and printed texts: short sentences, the field's nouns."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST = 40  # words of a sentence
CODE = re.compile(r"^```.*?^```|^\$\$.*?\$\$|<!--.*?-->", re.MULTILINE | re.DOTALL)


def newest(text):
    """The top section of the list of changes."""
    return re.split(r"^## ", text, flags=re.MULTILINE)[1]


def prose(text):
    """Paragraphs, headings, list items and cells of tables, without code."""
    text = re.sub(r"`[^`]*`", "X", CODE.sub("\n\n", text))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )|\n(?=\|)|(?<=\|)\n", text):
        cells = block.split("|") if block.lstrip().startswith("|") else [block]
        yield from (" ".join(c.split()) for c in cells if c.strip(" -\n"))


def sentences(text):
    for block in prose(text):
        yield from re.split(r"(?<=[.!?])[)\"*]* (?=[\"(*]*[A-Z`])", block)


def words(sentence):
    return [w for w in sentence.split() if re.search(r"\w", w)]
