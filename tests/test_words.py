"""Words of README, docs and printed texts: short sentences, and the field's nouns."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import trjmcmc as trj

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))
MODULES = sorted((ROOT / "trjmcmc").rglob("*.py"))

LONGEST = 40  # words of a sentence
ENTRIES = 40  # of the glossary
WORDS_OF_DOCS = 29_400

CODE = re.compile(r"^```.*?^```|^\$\$.*?\$\$|<!--.*?-->", re.MULTILINE | re.DOTALL)
BLOCKS = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)|(?<=\|)\n")
SENTENCES = re.compile(r"(?<=[.!?])[)\"*]* (?=[\"(*]*[A-Z])")
NO_ZERO = re.compile(r"(?<![\d.\w])\.\d")
EACH = "chain|model|step|draw|point|call|second|minute|parameter|run|sampler|worker|batch|target"
RATE = re.compile(rf"\b(?:draws?|steps?|calls?|runs?|rows?|seconds?|numbers?) an? (?:{EACH})s?\b")

PRIVATE = re.compile(
    r"\b(?:climb(?:s|ed|ing)?|summits?|basins?|tours?|screen(?:s|ed|ing)|witness(?:es)?|relatives"
    r"|(?:a|the|each|every|first|last|next|to|from|of|one) looks?|tak(?:e|es|en|ing) up|took up"
    r"|rooms?|floors?|faces?|lessons?|crumbs?|melting|census|spells?|crew|teams?|too dear"
    r"|owes?|nobody|anybody|honest\w*|nothing (?:sound )?tells|a number at once)\b",
    re.IGNORECASE,
)
OF_FOLDERS = re.compile("rooms?|floors?", re.IGNORECASE)  # internals.md names them

SEARCHED = (
    "marginal likelihood|hierarchical|trans-dimensional|transdimensional|variable.dimension|"
    "RJMCMC|Voronoi|seismic|receiver function|correlated noise|nested model|gravitational.wave"
)


def prose(text):
    """Paragraphs, headings, list items and cells of tables, without code."""
    text = re.sub(r"`[^`]*`", "X", CODE.sub("\n\n", text))
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace(r"\|", "given")
    for block in BLOCKS.split(text):
        cells = block.split("|") if block.lstrip().startswith("|") else [block]
        yield from (" ".join(c.split()) for c in cells if c.strip(" -\n"))


def texts():
    """Of each page, and of the newest changes, its name and its prose."""
    for path in PAGES:
        yield path.name, list(prose(path.read_text()))
    for path in GALLERY:
        lines = [line[2:] for line in path.read_text().splitlines() if line[:2] in {"# ", "#"}]
        yield path.name, list(prose("\n".join(lines)))
    newest = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    yield "CHANGELOG.md", list(prose(newest))


TEXTS = dict(texts())


def printed(path):
    """Texts that a module may print: its strings of several words that are no docstrings."""
    nodes, inside = list(ast.walk(ast.parse(path.read_text()))), set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inside.update(map(id, node.values))
            yield "".join(v.value if isinstance(v, ast.Constant) else "X" for v in node.values)
        elif isinstance(node, ast.Expr):
            inside.add(id(node.value))
    strings = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in inside]
    yield from (s.value for s in strings if isinstance(s.value, str) and " " in s.value)


def documented():
    """Docstrings of what the package shows, and of its methods, without examples and code."""
    things = [getattr(trj, name) for name in trj.__all__]
    rooms = [room for room in things if inspect.ismodule(room)]
    things += [getattr(room, name) for room in rooms for name in getattr(room, "__all__", ())]
    classes = [thing for thing in things if inspect.isclass(thing)]
    things += [x for c in classes for name, x in vars(c).items() if not name.startswith("_")]
    for text in {str(thing.__doc__) for thing in things if thing.__doc__}:
        text = re.split(r"\n\s*Examples?:", text)[0]
        yield " ".join(re.sub(r":\w+:`[^`]*`|``[^`]*``", "X", text).split())


def found(pattern, texts):
    return [f"{m[0]!r}: {text[:90]}" for text in texts for m in pattern.finditer(text)]


@pytest.mark.parametrize("name", TEXTS)
def test_sentences_are_short_and_numbers_begin_with_a_digit(name):
    sentences = [s for block in TEXTS[name] for s in SENTENCES.split(block)]
    counts = {s: len(re.findall(r"\S*\w\S*", s)) for s in sentences}
    assert not [f"{n}: {s}" for s, n in counts.items() if n > LONGEST]
    assert not found(NO_ZERO, TEXTS[name])


@pytest.mark.parametrize("name", TEXTS)
def test_pages_have_no_private_words(name):
    hits = found(PRIVATE, TEXTS[name]) + found(RATE, TEXTS[name])
    folders = name == "internals.md"
    assert not [h for h in hits if not (folders and OF_FOLDERS.match(h.strip("'")))]


def test_printed_texts_have_no_private_words():
    some = [path for path in MODULES if PRIVATE.search(path.read_text())]  # parsing takes time
    hits = {path.name: found(PRIVATE, printed(path)) for path in some}
    assert not {name: some for name, some in hits.items() if some}


@pytest.mark.parametrize("pattern", [PRIVATE, RATE, NO_ZERO], ids=["words", "rates", "zeros"])
def test_docstrings_of_what_is_public_have_no_private_words(pattern):
    assert not found(pattern, documented())


def test_the_glossary_is_short_and_in_order():
    page = (ROOT / "docs" / "glossary.md").read_text()
    entries = re.findall(r"^\| ([^|]+) \| [^|-]", page, re.MULTILINE)[1:]
    assert 30 <= len(entries) <= ENTRIES and entries == sorted(entries, key=str.lower)
    for name in ("index", "start"):
        assert "(glossary.md)" in (ROOT / "docs" / f"{name}.md").read_text()


def test_the_menu_names_pages_by_their_titles():
    index = (ROOT / "docs" / "index.md").read_text()
    for title, name in re.findall(r"^\| \[(.+?)\]\(([\w-]+\.md)\)", index, re.MULTILINE):
        assert (ROOT / "docs" / name).read_text().startswith(f"# {title}\n"), name


@pytest.mark.parametrize("words", SEARCHED.split("|"))
def test_words_that_readers_search_for_are_there(words):
    pattern = re.compile(words, re.IGNORECASE)
    pages = [text for name, text in TEXTS.items() if name != "CHANGELOG.md"]
    assert any(pattern.search(block) for text in pages for block in text)


def test_the_docs_do_not_grow():
    assert sum(len(path.read_text().split()) for path in PAGES) <= WORDS_OF_DOCS


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (PRIVATE, "It takes up what a look has met."),
        (PRIVATE, "Modes whose basins hold 4e-4 of a prior"),
        (NO_ZERO, "to .01 in"),
        (RATE, "60 draws a chain"),
    ],
)
def test_what_is_counted_would_be_found(pattern, text):
    assert found(pattern, prose(text))
