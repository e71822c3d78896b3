"""The graph: what is in it, its columns, and that Mermaid reads what is written for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from emulators import Unavailable, browser_script, unavailable

from projections.cli.main import main
from projections.inspect.graph.graph_model import Graph, graph_of, mermaid
from projections.inspect.graph.page import columns_of, page, panels
from projections.language.findings.kinds import Finding
from projections.language.loader import load, loads
from projections.language.models import ACTIONS
from projections.language.review import review_text

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    ROOT / "projections/rules/social.yaml",
    ROOT / "tests/language/rules/shop.yaml",
    ROOT / "tests/language/rules/everything.yaml",
    *sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))[::4],
]

NASTY = r"""
table: {key: [PK, SK], indexes: {'<i> & "x"': [GSI1PK, GSI1SK]}}
entities:
  A-1: {key: {PK: 'A<script>alert(1)</script>#{a}', SK: 'a "quoted" \ [text] {{x}} `y` | z & &amp; #35; %'}}
  subgraph: {key: {PK: 'ENTITY_WITH_A_VERY_LONG_NAME_THAT_GOES_ON_AND_ON#{a}#{b}#{c}', SK: 'größe 数据 {d}'}}
  end: {key: {PK: 'END#{a}', SK: end}, derived: true}
projections:
  class:
    from: A-1
    where: {'x"><b>': ['"</script><script>alert(2)</script>', {prefix: '<!--'}]}
    copy: {into: subgraph, attributes: {'<b>': a, 'q"q': b}, values: {b: '{a}<i>'}}
  end: {from: subgraph, aggregate: {into: end, set: {'a&b': count}}}
  default: {from: subgraph, index: {GSI1PK: '{a}', GSI1SK: '</style>{b}'}}
"""


def graph(path: Path) -> Graph:
    text = path.read_text()
    return graph_of(loads(text), path.name, review_text(text, path.name).findings)


def nasty() -> Graph:
    return graph_of(loads(NASTY), "<title>&", review_text(NASTY, "a<b").findings)


# --- the model ---


def test_graph_has_every_entity_and_rule_with_details() -> None:
    shown = graph(FILES[0])
    assert list(shown.entities) == ["User", "Post", "Like", "Comment", "PostMeta"]
    assert [entity.role for entity in shown.entities.values()] == ["application"] * 4 + ["copy"]
    rule = shown.rules["discussion"]
    assert (rule.sources, rule.target, rule.inside) == (("Comment",), "PostMeta", False)
    assert rule.key == (("PK", "POST#{postId}"), ("SK", "METADATA"))
    assert rule.where == "hidden is false or hidden is absent"
    assert rule.gist == "commentCount and 2 more"
    assert rule.sentence == (
        "Keeps commentCount, averageStars and praiseCount on each PostMeta, computed from its Comment items."
    )
    assert rule.writes[2] == ("praiseCount", "count of Comment where stars is at least 4")
    assert (rule.path.alone, rule.passes) == (5, 1)
    listed = shown.rules["listed"]
    assert (listed.inside, listed.after) == (True, ("postById",))
    assert [where for where, _ in listed.cases] == ['status is "published"', 'status is "draft"']
    assert [finding.code for finding in listed.findings] == ["hot-partition"]
    assert [finding.code for finding in shown.findings] == ["expiry-undecided", *2 * ["several-requests"]]
    assert shown.rules["commentAuthor"].match == (("userId", "{userId}"),)
    assert shown.entities["Comment"].index_key == (("GSI1PK", "AUTHOR#{userId}"), ("GSI1SK", "{createdAt}"))


def test_bound_variables_stand_in_the_key_of_the_target() -> None:
    rule = graph(ROOT / "tests/language/rules/shop.yaml").rules["ordersByDay"]
    assert rule.key == (("PK", "DAY#{orderedAt|date(%Y-%m-%d)}"), ("SK", "SHARD#{orderId|bucket(4)}"))


WITHIN = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: META}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
projections:
  likes: {from: Like, within: 30s, aggregate: {into: Post, set: {likeCount: count}}}
  old: {from: Like, within: 5m, hold: true, aggregate: {into: Post, set: {oldCount: count}}}
"""


def test_limits_of_the_freshness_are_shown_with_the_mode() -> None:
    graph = graph_of(loads(WITHIN), "rules.yaml")
    assert "<b>likes</b> (within 30 s)<br/>" in mermaid(graph)
    assert "<b>old</b> (held, within 300 s)<br/>" in mermaid(graph)
    assert "Within: 30 s" in page(graph)


# --- the columns ---


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_columns_have_every_box_once_with_rules_between_entities(path: Path) -> None:
    shown = graph(path)
    columns = columns_of(shown)
    boxes = [("entity", name) for name in shown.entities]
    boxes += [("rule", name) for name, rule in shown.rules.items() if not rule.inside]
    assert sorted(box for column in columns for box in column) == sorted(boxes)
    assert all(len({kind for kind, _ in column}) == 1 for column in columns)


def test_columns_follow_the_depth_and_untangle_lines() -> None:
    columns = [[name for _, name in column] for column in columns_of(graph(FILES[0]))]
    assert [sorted(column) for column in columns] == [
        ["Post"],
        ["authorship"],
        ["User"],
        ["commentAuthor"],
        ["Comment", "Like"],
        ["discussion", "engagement", "newest", "postById"],
        ["PostMeta"],
    ]
    rules = columns[5].index("engagement") < columns[5].index("discussion")
    assert (columns[4].index("Like") < columns[4].index("Comment")) == rules


# --- Mermaid ---


def test_mermaid_text() -> None:
    text = mermaid(graph(FILES[0]))
    assert text.startswith("flowchart LR\n")
    assert 'e0["<b>User</b><br/>USER#35;#123;userId#125;<br/>PROFILE"]' in text
    assert 'e2 --> r1(["<b>engagement</b><br/>aggregate: likeCount"]) --> e4' in text
    assert 'e4 --- r6(["<b>listed</b><br/>index: GSI1"])' in text


@pytest.fixture(scope="module")
def draw(chromium: Browser) -> Callable[[str], str]:
    """Mermaid itself: gives the visible text of what it draws. Raises what it has against a text."""
    try:
        script = browser_script("mermaid")
    except Unavailable as error:
        unavailable(error)
    tab = chromium.new_page()
    tab.add_script_tag(path=script)
    tab.evaluate("mermaid.initialize({startOnLoad: false, securityLevel: 'strict', maxTextSize: 500000})")

    def draw(text: str) -> str:
        drawn = "async (text) => { const {svg} = await mermaid.render('g', text); document.body.innerHTML = svg;"
        return str(tab.evaluate(drawn + " return document.body.innerText }", text))

    return draw


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_mermaid_draws_it(draw: Callable[[str], str], path: Path) -> None:
    shown = graph(path)
    text = draw(mermaid(shown))
    assert [name for name in (*shown.entities, *shown.rules) if name not in text] == []
    lines = {line.strip() for line in text.splitlines()}
    assert {template for entity in shown.entities.values() for _, template in entity.key} <= lines


def test_mermaid_shows_any_name_and_template_as_it_is(draw: Callable[[str], str]) -> None:
    text = draw(mermaid(nasty()))
    for name in ("A-1", "subgraph", "end", "class", "default"):
        assert name in text
    assert "A<script>alert(1)</script>#{a}" in text
    assert 'a "quoted" \\ [text] {{x}} `y` | z & &amp; #35; %' in text


# --- the page, without a browser ---


class Reader(HTMLParser):
    """Whether a page is well formed, and what it refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name in ("src", "href", "srcset", "action", "data"):
                self.references.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_page_is_well_formed_and_refers_to_nothing_outside(path: Path) -> None:
    text = page(graph(path))
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.references == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert re.search(r"https?://|@import|url\((?!#)", text) is None
    assert "<!--" not in text.replace("<!doctype", "")


def test_the_overview_counts_the_findings_of_rules() -> None:
    found = Finding("warning", "hot-partition", "rules.yaml", 1, 1, "projections.likedBy", "likedBy", "reason", "")
    rules = load(ROOT / "projections/rules/social.yaml")
    assert '<p class="quiet">1 more finding in the marked rules.</p>' in panels(graph_of(rules, "social", [found]))
    two = panels(graph_of(rules, "social", [found, found]))
    assert "2 more findings in the marked rules." in two


def test_texts_of_a_rule_file_are_escaped_on_the_page() -> None:
    text = page(nasty())
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert text.count("<script") == 1
    assert text.count("</style>") == 1
    assert "alert(1)" in text


# --- the command ---


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(("options", "begins"), [([], "flowchart LR"), (["--format", "html"], "<!doctype html>")])
def test_command_prints_the_selected_format(
    options: list[str], begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("graph", "social", *options) == 0
    out = capsys.readouterr().out
    assert out.startswith(begins)
    assert out.endswith("\n")


@pytest.mark.parametrize(("name", "begins"), [("a.html", "<!doctype"), ("a.mmd", "flowchart")])
def test_the_command_writes_the_form_that_the_files_ending_names(
    name: str, begins: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / name
    assert run("graph", "social", "-o", str(target)) == 0
    assert target.read_text().startswith(begins)
    assert capsys.readouterr() == ("", f"Wrote {target}: 9 rules of social.yaml.\n")


@pytest.mark.parametrize("name", ["a.html", "a.mmd"])
def test_the_command_does_not_overwrite_an_edited_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / name
    assert run("graph", "social", "-o", str(target)) == 0
    assert run("graph", "tags", "-o", str(target)) == 0, "it replaces its own output"
    target.write_text(edited := target.read_text().replace("\n", "\n\n", 1))
    assert run("graph", "tags", "-o", str(target)) == 2
    assert "was edited since it was written" in capsys.readouterr().err
    assert target.read_text() == edited
    assert run("graph", "tags", "-o", str(target), "--force") == 0
    assert target.read_text() != edited


def test_files_that_cannot_be_written_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("graph", "social", "-o", str(tmp_path / "a.svg")) == 2
    assert "other names need --format" in capsys.readouterr().err
    assert run("graph", "social", "-o", str(tmp_path / "none" / "a.html")) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_every_kind_of_rule_has_a_colour_on_the_page() -> None:
    style = page(graph_of(load(ROOT / "projections/rules/social.yaml"), ""))
    for kind, action in ACTIONS.items():
        assert f".k-{kind} {{ --kind: light-dark({action.picture().light}, #" in style
