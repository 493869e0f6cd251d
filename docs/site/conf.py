"""The documentation site: `make docs`. Pages are docs/*.md as they are, read from the root.

What is generated: the navigation, from the tables of docs/index.md; the pages of the API, a folder
each, from docstrings; the gallery, from the scripts of docs/gallery/ and stored runs of them.
"""

import inspect
import os
import pydoc
import re
import sys
import warnings
from pathlib import Path, PurePosixPath

import latex2mathml.converter

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import trjmcmc as trj

project, author, release = "trjmcmc", "The trjmcmc developers", trj.__version__
project_copyright = author
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    ".github/CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "docs/*.md",
    "docs/api/*.rst",
    "docs/gallery/*.py",
]
exclude_patterns = [
    ".[!g]*",
    ".git",
    "build",
    "wheels",
    "shared",
    "output",
    "tests",
    "trjmcmc",
    "examples",
    "**/conf.py",
]

html_theme, html_title = "furo", f"trjmcmc {release}"
html_extra_path = ["index.html"]  # leads from the root of the site to docs/index.html
html_math_renderer = "mathml"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
suppress_warnings = ["myst.header", "myst.xref_ambiguous"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_custom_sections = ["Error", "Source"]
napoleon_use_rtype = False
napoleon_use_ivar = True  # else attributes are described twice
python_use_unqualified_type_names = True

nb_custom_formats = {".py": "percent.read"}
nb_execution_mode = "off"
nb_merge_streams = True


# ---- mathematics as MathML: no script, no font, nothing from elsewhere -------------------------


def visit_math(translator, node):
    """A formula as MathML."""
    block = node.tagname == "math_block"
    text = node.astext().replace("\n", " ")
    found = latex2mathml.converter.convert(text, display="block" if block else "inline")
    translator.body.append(f"<div class='math'>{found}</div>" if block else found)
    raise __import__("docutils").nodes.SkipNode


# ---- the API, a page per folder ----------------------------------------------------------------

GIVEN = (  # what functions return, though it has no public name
    "trjmcmc.result.predict.Prediction",
    "trjmcmc.result.report.RunReport",
    "trjmcmc.doubts.doubt.Doubt",
    "trjmcmc.interop.foreign.ForeignModel",
)

TITLES = {
    "target": "Targets: models, priors, likelihoods",
    "space": "Spaces of models",
    "run": "Runs",
    "result": "Results",
    "doubts": "Doubts about an answer",
    "approximate": "Variational approximation",
    "validation": "Checks of a user's own model",
    "simulate": "Simulated data",
    "posthoc": "Marginal likelihoods of draws",
    "compare": "Samplers side by side",
    "interop": "Models of other languages",
    "weights": "Learned distributions over models",
    "transport": "Transport maps",
    "kernel": "Moves",
    "priors": "Priors",
    "problems": "Problems with known answers",
    "graphs": "Graphs",
    "fit": "Training of maps",
    "estimate": "Estimates",
    "errors": "Errors and warnings",
    "versions": "Versions",
}


def write_api():
    """Pages docs/api/*.rst, written anew where they differ."""
    folder = ROOT / "docs" / "api"
    folder.mkdir(exist_ok=True)
    rooms = {room: {} for room in TITLES}
    for name in trj.__all__:
        thing = getattr(trj, name)
        if not inspect.ismodule(thing):
            rooms[thing.__module__.split(".")[1]][f"trjmcmc.{name}"] = thing
    for path in GIVEN:
        thing = pydoc.locate(path)
        rooms[thing.__module__.split(".")[1]][path] = thing
    shown = [thing for found in rooms.values() for thing in found.values()]
    for room, found in rooms.items():
        module = getattr(trj, room)
        for name in getattr(module, "__all__", None) or dir(module):
            thing = getattr(module, name)
            ours = getattr(thing, "__module__", "").startswith("trjmcmc.")
            if callable(thing) and ours and not name.startswith("_") and thing not in shown:
                found[f"trjmcmc.{room}.{name}"] = thing
                shown.append(thing)
    pages = {room: page(TITLES[room], room, found) for room, found in rooms.items() if found}
    toc = "\n".join(f"   {room}" for room in pages)
    pages["index"] = f"API\n===\n\nBy part of the package.\n\n.. toctree::\n\n{toc}\n"
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()


def page(title, room, found):
    """A page of reStructuredText that documents some classes and functions."""
    lines = [title, "=" * len(title), ""]
    doc = inspect.getdoc(sys.modules.get(f"trjmcmc.{room}")) or ""
    lines += [doc.split("\n\n")[0], ""] if doc else []
    for name, thing in sorted(found.items(), key=lambda item: item[0].lower()):
        if inspect.isclass(thing):
            simple = issubclass(thing, Exception)
            lines += [f".. autoclass:: {name}", "" if simple else "   :members:", ""]
        else:
            lines += [f".. autofunction:: {name}", ""]
    return "\n".join(lines)


# ---- navigation ---------------------------------------------------------------------------------


def menu(text, title, extra=""):
    """What a page links to as entries of the site's menu."""
    links = [p for p in re.findall(r"\]\(([\w./-]+)\)", text) if p.endswith((".md", ".py"))]
    paths = (PurePosixPath(os.path.normpath(f"docs/{p}")).with_suffix("") for p in links)
    names = "\n".join(f"/{path}" for path in paths)
    return f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{names}{extra}\n```\n"


def add_navigation(app, name, source):
    """Behind the page of pages, and behind the gallery, what they link to as the site's menu.

    What tests shorten in a page's code is a comment of the page, and left out.
    """
    source[0] = re.sub(r"(?m)^<!-- test: .*-->\n", "", source[0])
    if name == "docs/gallery":
        source[0] += menu(re.search(r"(?s)\n\| example .*", source[0])[0], "Gallery")
    elif name == root_doc:
        for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
            title = section.splitlines()[0]
            source[0] += menu(section, title, "\napi/index" if title == "Reference" else "")


def escape_stars(app, what, name, thing, options, lines):
    """Shapes such as (n, *shape) in docstrings, which are no emphasis."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = re.sub(r"(?<![\\*\w])\*(?=[a-z_]+[,) ])", r"\\*", line)


def setup(app):
    write_api()
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", escape_stars, priority=900)
