"""A run as a page and as a picture: complete, escaped, and nothing on it comes from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
from pydantic import BaseModel

from agentloop import END, START, Graph, Log, ask, both, each, emit, llm, node, tool
from agentloop.report import MAX_STEPS, report_page
from agentloop.run_view import RunView, StepView, view_recorded, view_result
from agentloop.stores import MemoryStore, Row
from agentloop.testing import ScriptedModel

HOSTILE = "</pre><script>alert('x')</script><img src=http://evil onerror=alert(1)>&\"'"


class S(BaseModel):
    text: str = HOSTILE
    items: tuple[str, ...] = (HOSTILE, "b")
    log: Log[str] = []


@tool(effect="once")
async def look(what: str) -> dict[str, str]:
    return {HOSTILE: what}


async def plan(s: S) -> None:
    emit("note " + HOSTILE, {"at": HOSTILE})
    s.log += [await llm(str, s.text)]


async def work(s: S, item: str) -> None:
    await look(item)
    s.log += [item]


async def aside(s: S) -> None:
    raise ValueError(HOSTILE)


async def verify(s: S) -> Literal["plan", "approve"]:
    return "plan" if len(s.log) < 4 else "approve"


async def approve(s: S) -> None:
    s.text = await ask(HOSTILE, str)


def graph() -> Graph[S]:
    g = Graph(S, name="page")
    g.chain(START, plan, both(each(work, over="items"), node(aside, on_error="skip")), verify)
    return g.route(verify, plan, approve, limit=3, then=approve).chain(approve, END)


def recorded() -> MemoryStore:
    store = MemoryStore()
    model = ScriptedModel(lambda call: call.prompt)
    graph().run_sync(S(), run=HOSTILE, store=store, model=model)
    return store


class Page(HTMLParser):
    """The tags of a page; they must be balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def pages() -> list[str]:
    store = recorded()
    live = graph().run_sync(S(), model=ScriptedModel(lambda call: call.prompt), check=False)
    return [
        report_page(view_recorded(store, HOSTILE), graph()),
        report_page(view_recorded(store, HOSTILE)),
        graph().report(live),
        report_page(RunView("empty")),
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_page_is_closed_to_what_its_run_holds(number: int) -> None:
    """Whatever texts say they stay text: no script, no request, no attribute of theirs."""
    text = pages()[number]
    page = Page(text)
    assert set(page.tags).isdisjoint(["script", "img", "iframe", "link", "object", "form", "base"])
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("href", "src", "xlink:href", "action"):
            assert (value or "").startswith("#step-")
    assert "default-src 'none'" in text
    assert re.findall(r"url\((?!#arrow)", text) == []
    assert "<script" not in text


def test_a_page_is_for_everybody() -> None:
    """A language, a title, headings in order, names for pictures, a dark and a light face."""
    text = pages()[0]
    for part in ('<html lang="en">', "<title>Run ", "<main>", 'role="img" aria-label="graph page"'):
        assert part in text
    assert text.count("<h1>") == 1
    assert text.index("<h2>") < text.index("<h3>")
    assert "prefers-color-scheme: dark" in text
    assert "focus-visible" in text


def test_a_view_of_a_store_has_everything_recorded() -> None:
    """Steps with their writes, choices and times, calls, questions, and what was skipped."""
    view = view_recorded(recorded(), HOSTILE)
    assert view.status == "waiting"
    assert view.questions == {"approve:0": HOSTILE}
    first = view.steps["plan"]
    assert (first.status, first.patch) == ("done", {"log": [HOSTILE]})
    assert first.calls[0].kind == "llm"
    assert view.steps["verify"].choice == "plan"
    assert view.steps["verify#2"].choice == "approve"
    names = {path for path in view.steps if path.startswith("work+aside/work")}
    assert names == {"work+aside/work[0]", "work+aside/work[1]"}
    assert view.steps["work+aside/aside"].status == "skipped"
    assert view.steps["work+aside/aside"].error == f"ValueError: {HOSTILE}"
    assert view.steps["approve"].status == "waiting"
    times = [step.began_s for step in view.steps.values() if step.status == "done"]
    assert all(time is not None for time in times)
    assert 0 < view.busy_s < 60


def test_a_view_of_a_result_has_what_is_not_recorded() -> None:
    """Own events and failures, next to the same steps and calls."""
    result = graph().run_sync(S(), model=ScriptedModel(lambda call: call.prompt), check=False)
    view = view_result(result)
    assert view.steps["plan"].notes == [("note " + HOSTILE, {"at": HOSTILE})]
    assert [call.kind for call in view.steps["plan"].calls] == ["llm"]
    assert view.steps["work+aside/work[0]"].calls[0].result == {HOSTILE: HOSTILE}
    assert view.status == "failed"
    assert view.errors[0].startswith("GraphError: ask() at approve:0 needs a store")


def test_damaged_rows_are_told_not_hidden() -> None:
    """The rest of the run is shown all the same."""

    class Damaged(MemoryStore):
        def rows(self, run: str) -> list[Row]:
            rows = super().rows(run)
            odd = [
                Row("x", "patch", b"{"),
                Row("y", "call", b"[1]"),
                Row("z", "patch", b'{"when":[]}'),
            ]
            odd.append(Row("w", "call", b'{"spent": "much", "when": {"a": 1}}'))
            return [*rows, *odd]

    store = Damaged()
    graph().run_sync(S(), run="r", store=store, model=ScriptedModel(lambda call: call.prompt))
    view = view_recorded(store, "r")
    assert view.damaged == ["patch at x", "call at y"]
    assert "patch at x" in report_page(view)
    assert len(view.steps) >= 6


def test_a_long_run_is_cut_and_says_so() -> None:
    """A page stays readable; long values are cut with the number of characters left out."""
    view = RunView("long", "done", start={"text": "x" * 10_000})
    for number in range(MAX_STEPS + 5):
        view.steps[f"s{number}"] = StepView(f"s{number}", "done", {"n": 1}, began_s=1.0 + number)
    text = report_page(view)
    assert "5 more steps are left out" in text
    assert "6,000 more characters" in text
    assert text.count("<details") == MAX_STEPS + 1


def test_waits_are_cut_short_on_the_timeline() -> None:
    """A run that waited for a day still shows its seconds."""
    view = RunView("waited", "done")
    view.steps["a"] = StepView("a", "done", began_s=1000.0, took_s=1.0)
    view.steps["b"] = StepView("b", "done", began_s=90_000.0, took_s=1.0)
    text = report_page(view)
    left = [float(x) for x in re.findall(r'class="bar done" style="left:([\d.]+)%', text)]
    assert left[0] == 0
    assert 50 < left[1] < 56
    assert "dotted: a wait cut short" in text


def test_the_svg_is_well_formed_and_holds_every_step_and_arrow() -> None:
    """It parses as XML, has a title, and one path per arrow; a run is drawn over it."""
    g = graph()
    plain = ElementTree.fromstring(g.svg())
    space = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in plain.iter(f"{space}text")]
    assert {"START", "plan", "work ∥ aside", "verify", "approve", "END"} <= set(texts)
    arrows = [e for e in plain.iter(f"{space}path") if e.get("marker-end")]
    assert len(arrows) == len(list(g.nx.edges))
    result = g.run_sync(S(), model=ScriptedModel(lambda call: call.prompt), check=False)
    assert re.search(r"2x, [\d.]+ ms", g.svg(result))
    names = [node(plan, name=f"step{number}") for number in range(3)]
    odd = Graph(S, name="odd").chain(START, *names, END)
    ElementTree.fromstring(odd.svg())


def test_the_style_travels_with_the_package() -> None:
    """The page's style is a file of the package, listed for the wheel."""
    listed = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert '"report.css"' in listed
