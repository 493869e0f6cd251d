"""Pictures of draws, and the page of a result: whole in itself, and readable on a phone."""

import json
import re
import shutil
import subprocess
import warnings
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot
import pandas as pd
import pytest

import trjmcmc as trj
from tests import toys
from trjmcmc.doubts.doubt import warn_of
from trjmcmc.errors import ConfigurationError, TRJError
from trjmcmc.result.html import page, table
from trjmcmc.result.report_page import CITATION

matplotlib.use("Agg")

ROOT = Path(__file__).parents[2]
PHONE = 390  # pixels
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
EMPTY = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}


@pytest.fixture(scope="module")
def result():
    target = toys.gaussians()
    sampler = trj.TRJSampler(target, toys.gaussian_map(target), seed=1)
    return sampler.run(100, chains=32, fit=False, progress=False)


class Outline(HTMLParser):
    """Tags that are open, addresses, pictures, headings."""

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.pictures, self.headings, self.tags = [], [], [], [], set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open += [] if tag in EMPTY else [tag]
        attrs = dict(attrs)
        self.addresses += [attrs[k] for k in ("src", "href", "action", "data") if k in attrs]
        self.pictures += [attrs] if tag == "img" else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.headings += [data] if self.open and self.open[-1] == "h2" else []


@pytest.mark.whole
@pytest.mark.parametrize("which", ["result", "components"])
def test_the_page_is_whole_in_itself(which, request, tmp_path):
    result, before = request.getfixturevalue(which), matplotlib.pyplot.get_fignums()
    text = result.report_html(tmp_path / "report.html").read_text()
    found = Outline(text)
    assert not found.open
    assert all(a.startswith(("data:", "#")) for a in found.addresses)
    assert not re.search(r"url\(|@import|https?://", text)
    assert not found.tags & {"script", "link", "iframe", "object"}
    assert found.headings[:2] == ["Warnings", "Models"]
    assert {"Parameters", "Convergence", "Versions and citation"} <= set(found.headings)
    assert len(found.pictures) >= 4 and all(p["alt"] for p in found.pictures)
    assert trj.__version__ in text and len(text) < 2e6
    assert matplotlib.pyplot.get_fignums() == before  # its own are closed


@pytest.mark.whole
def test_the_page_says_what_the_result_warns_of(components, result, tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_of(components.doubts)
        warn_of(result.doubts)
    assert said  # the run of components is too short
    texts = [r.report_html(tmp_path / "page.html").read_text() for r in (components, result)]
    for warned in said:
        assert any(escape(str(warned.message)) in text for text in texts)
    assert 'class="doubt"' in texts[0]


def test_words_of_the_user_stay_words(tmp_path):
    frame = pd.DataFrame({"<b>": ["<script>", ""], "none": ["", ""]}, index=["a&b", "c"])
    text = page("<t>", [], {"One": [table(frame, most=1)], "Two": []})
    assert "&lt;script&gt;" in text and "<script>" not in text and "a&amp;b" in text
    assert "none" not in text.split("</style>")[1].split("<tbody>")[0]
    assert "1 more rows are not shown" in text and "Two" not in text


def test_the_citation_is_that_of_the_file():
    cited = (ROOT / "CITATION.cff").read_text()
    title = re.search(r'^title: "(.+)"$', cited, re.MULTILINE)[1]
    assert title in CITATION and "The trjmcmc developers" in CITATION


def test_pictures_of_draws(result, components):
    last = result.chains.models[-1]
    assert len(result.plot_trace(chains=2)) >= 2
    assert result.plot_trace(last).shape[1] == 2
    assert result.plot_rank(last, "log joint") is not None
    names = list(result.summary().loc[last].index)
    assert result.plot_corner(last, names[:2]).shape == (2, 2)
    assert len(components.plot_trace(var_names=["k", "log joint"])) == 2
    axes = components.plot_corner("2")  # of components that are all alike
    assert [ax.get_xlabel() for ax in axes[-1, :3]] == ["smallest x", "mean x", "largest x"]
    with pytest.raises(ConfigurationError, match="no 'nothing'; there are"):
        result.plot_rank(var_names="nothing")
    with pytest.raises(ConfigurationError, match="expected 1 or more"):
        result.plot_trace(chains=0)
    with pytest.raises(TRJError, match="two numbers or more"):
        result.plot_corner(last, names[:1])
    matplotlib.pyplot.close("all")


def test_ranks_are_of_draws_evenly_spaced(result, monkeypatch):
    seen, module = [], trj.Result.__module__
    monkeypatch.setattr(f"{module}.RANKED", 1000)
    monkeypatch.setattr(f"{module}.plot_rank", lambda series, named: seen.append(series["model"]))
    result.plot_rank()
    assert [x.shape for x in seen] == [(4, 250)]


# ---- in a browser ------------------------------------------------------------------

MEASURE = """<!DOCTYPE html><html><body><iframe id="f" width="{width}" height="800"
srcdoc="{text}"></iframe><script>
document.getElementById("f").onload = function () {{
  const d = this.contentDocument, all = [...d.images];
  const said = {{width: d.documentElement.scrollWidth, height: d.body.scrollHeight,
    pictures: all.length, drawn: all.filter(i => i.complete && i.naturalWidth > 0).length}};
  document.title = JSON.stringify(said);
}};
</script></body></html>"""


def opened(text, folder):
    """What a browser measures of a page at a phone's width, and what it complains of."""
    path = folder / "frame.html"
    path.write_text(MEASURE.format(width=PHONE, text=escape(text)))
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    words += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"]
    words += ["--virtual-time-budget=20000", "--dump-dom", path.as_uri()]
    said = subprocess.run([CHROMIUM, *words], capture_output=True, text=True, timeout=240)
    title = re.search(r"<title>(\{.*?\})</title>", said.stdout)
    assert title, said.stderr[-2000:]
    complaints = [line for line in said.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(title[1]), complaints


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_shows_the_page_on_a_phone(result, tmp_path):
    text = result.report_html(tmp_path / "report.html").read_text()
    seen, complaints = opened(text, tmp_path)
    assert not complaints
    assert seen["pictures"] == seen["drawn"] == text.count("<img ") >= 4
    assert seen["width"] <= PHONE and seen["height"] > 2000


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_would_see_what_is_wrong(tmp_path):
    broken = '<img src="data:image/png;base64,AAAA"><div style="width:600px">wide</div>'
    broken += "<script>console.error('a planted error')</script>"
    seen, complaints = opened(broken, tmp_path)
    assert any("a planted error" in line for line in complaints)
    assert seen["drawn"] < seen["pictures"] and seen["width"] > PHONE
