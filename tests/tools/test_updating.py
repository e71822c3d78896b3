"""`--projections-update`: one update makes a case pass that the rules can pass, or changes nothing and gives the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from projections.errors import UsageError
from projections.testing.cases import read_cases
from projections.testing.plugin import rules_of
from projections.testing.scenario import Scenario
from projections.testing.updating import update

RULES = """
table: {key: [PK, SK]}
entities:
  Book: {key: {PK: "BOOK#{isbn}", SK: INFO}}
  Loan: {key: {PK: "MEMBER#{memberId}", SK: "LOAN#{loanId}"}}
  Shelf: {key: {PK: "SHELF#{shelf}", SK: STATS}, derived: true}
projections:
  loans: {from: Loan, bind: {isbn: "{isbn}"}, aggregate: {into: Book, set: {loanCount: count, fines: sum(fine)}}}
  labels: {from: Loan, compute: {set: {label: "{memberId} {loanId}"}}}
  shelves: {from: Book, bind: {shelf: "{shelf}"}, aggregate: {into: Shelf, set: {books: count, titles: values(text(title))}}}
queries: {books: {find: Book, by: [isbn], attributes: [title, shelf]}}
"""
BOOK = '{PK: BOOK#1, SK: INFO, title: "1", shelf: "07"}'
LOAN = '{PK: MEMBER#m, SK: LOAN#l1, isbn: "1", fine: 0.10000000000000000000000000000000000001}'

Update = Callable[[str], str]


@pytest.fixture
def updated(tmp_path: Path) -> Update:
    """Updates each case of a file that fails, and asserts that it passes then; returns the text."""
    (tmp_path / "rules.yaml").write_text(RULES)
    rules = rules_of("rules.yaml", tmp_path)
    file = tmp_path / "a.projections.yaml"

    def updated(text: str) -> str:
        file.write_bytes(text.encode())
        for number, case in enumerate(read_cases(file).cases):
            try:
                case.play(Scenario(rules))
            except AssertionError:
                update(file, number, case, Scenario(rules))
            read_cases(file).cases[number].play(Scenario(rules))
        return file.read_bytes().decode()

    return updated


MODES = ("", "    partial: true\n", "    rules: [loans]\n", "    rules: [labels, shelves]\n")
EXPECTED = (
    "",
    "    then: []\n",
    "    then: [{PK: BOOK#1, SK: INFO}]\n",
    '    then: [{PK: BOOK#1, SK: INFO, title: "1", shelf: 07, loanCount: "1"}]\n',
    "    then:\n      - PK: BOOK#1\n        SK: INFO\n        fines: 2\n        loanCount: 7\n",
    "    then:\n      - loanCount: 7\n        SK: INFO\n        PK: BOOK#1\n      - {PK: SHELF#07, SK: STATS, books: 2}\n",
    "    gone: [[SHELF#07, STATS]]\n",
    "    gone:\n    - [BOOK#1, INFO]\n    then:\n    - {PK: MEMBER#m, SK: LOAN#l1, label: x}\n",
)
WHEN = (
    "",
    f"    when: [put: {LOAN}]\n",
    f"    when: [put: {LOAN}, delete: [BOOK#1, INFO]]\n",
    "    when: [delete: [BOOK#1, INFO]]\n",
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_one_update_makes_a_case_pass(updated: Update, newline: str) -> None:
    for mode, expected, when in product(MODES, EXPECTED, WHEN):
        if mode and "LOAN" in expected and "LOAN" not in when:
            continue  # an item that never existed
        text = f"cases:\n  - about: a\n    given: [{BOOK}]\n{when}{mode}{expected}  # end\n  - about: b\n"
        new = updated(text.replace("\n", newline))
        assert new.endswith(f"  # end{newline}  - about: b{newline}")
        assert newline == "\n" or "\n" not in new.replace("\r\n", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "partial: true, then: [{PK: BOOK#1, SK: INFO, loanCuont: 0, fines: 1}]",
            'no rule writes loanCuont (did you mean "loanCount"?), and BOOK#1 · INFO lacks it. If the update removed it, '
            "the case would assert nothing about it; change the case by hand",
        ),
        (
            "rules: [labels], then: [{PK: BOOK#1, SK: INFO, tilte: a}]",
            'no rule writes tilte (did you mean "title"?), and BOOK#1 · INFO lacks it',
        ),
        (
            "partial: true, then: [{PK: BOOK#2, SK: INFO, loanCount: 0}]",
            'BOOK#2 · INFO never existed (did you mean "BOOK#1 · INFO"?). If the update removed it',
        ),
        (
            'asks: [{query: books, gives: [{tilte: a, shelf: b}], with: {isbn: "1"}}]',
            'no item of the answer has tilte (did you mean "title"?). If the update removed it',
        ),
    ],
)
def test_what_a_narrow_case_expects_is_not_removed_if_it_is_likely_misspelt(
    updated: Update, tmp_path: Path, content: str, message: str
) -> None:
    text = f"cases: [{{about: a, given: [{BOOK}], {content}}}]"
    with pytest.raises(UsageError, match=re.escape(f"a.projections.yaml:1: cannot be updated: {message}")):
        updated(text)
    assert (tmp_path / "a.projections.yaml").read_text() == text


def test_a_board_that_is_likely_misspelt_keeps_its_scores(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("""
table: {key: [PK, SK]}
entities:
  Score: {key: {PK: "GAME#{game}", SK: "SCORE#{id}"}}
  Board: {key: {PK: "GAME#{game}", SK: BOARD}}
projections: {places: {from: Score, rank: {into: Board, by: points, digits: 3}}}
""")
    rules, file = rules_of("rules.yaml", tmp_path), tmp_path / "a.projections.yaml"
    text = """cases:
  - about: a
    given: [{PK: GAME#chess, SK: SCORE#1, points: 7}]
    then: any
    ranks: [{rule: places, board: {game: ches}, scores: [8]}]
"""
    file.write_text(text)
    with pytest.raises(UsageError, match='the board places game="ches" has no scores'):
        update(file, 0, read_cases(file).cases[0], Scenario(rules))
    assert file.read_text() == text
    file.write_text(text.replace("ches}", "chess}"))
    update(file, 0, read_cases(file).cases[0], Scenario(rules))
    assert file.read_text() == text.replace("ches}", "chess}").replace("[8]", "[7]")


def test_an_item_of_a_narrow_case_that_does_not_exist_any_more_becomes_gone(updated: Update) -> None:
    text = updated(
        f"cases: [{{about: a, given: [{BOOK}], when: [delete: [BOOK#1, INFO]], partial: true, "
        "then: [{PK: SHELF#07, SK: STATS, books: 1}]}]"
    )
    assert 'then: [], gone: [{ PK: "SHELF#07", SK: STATS }]' in text


def test_a_derived_attribute_that_an_item_lacks_is_removed(updated: Update) -> None:
    text = updated(
        f"cases: [{{about: a, given: [{BOOK.replace('title', 'name')}], partial: true, "
        "then: [{PK: SHELF#07, SK: STATS, books: 1, titles: {SS: [a]}}]}]"
    )
    assert "then: [{PK: SHELF#07, SK: STATS, books: 1}]" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (  # the first attribute of an item in block style
            "\n  - x: 1\n    PK: BOOK#1\n    SK: INFO # the sort key\n    words: {SS: [a]}\n",
            "\n  - PK: BOOK#1\n    SK: INFO # the sort key\n    words: {SS: [a]}\n    fines: 0\n    loanCount: 0\n",
        ),
        (  # the last attribute of an item in flow style, below a comment
            " [{PK: BOOK#1, loanCount: 0, fines: 0, words: *words,\n    SK: INFO, # the sort key\n    x: 1}] # end\n",
            " [{PK: BOOK#1, loanCount: 0, fines: 0, words: *words,\n    SK: INFO, # the sort key\n    }] # end\n",
        ),
        (  # below an alias
            " [{PK: BOOK#1, loanCount: 0, fines: 0, SK: INFO, words: *words, x: 1}]\n",
            " [{PK: BOOK#1, loanCount: 0, fines: 0, SK: INFO, words: *words}]\n",
        ),
        (  # in wire form
            ' [{PK: {S: BOOK#1}, SK: {S: INFO}, loanCount: {N: "1"}, words: {SS: [a]}}]\n',
            ' [{PK: {S: BOOK#1}, SK: {S: INFO}, loanCount: { "N": "0" }, words: {SS: [a]}, fines: { "N": "0" }}]\n',
        ),
    ],
)
def test_the_rest_of_an_item_stays(updated: Update, old: str, new: str) -> None:
    given = "cases:\n- about: a\n  given: [{PK: BOOK#1, SK: INFO, words: &words {SS: [a]}}]\n  then:"
    assert updated(given + old) == given + new


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (" [{PK: BOOK#1, SK: INFO, words: *words}]", "the last part of a list or mapping is an alias (*)"),
        ("\n  - PK: BOOK#1\n    SK: INFO\n    words: *words", "the last part of a list or mapping is an alias (*)"),
        ("\n  - <<: *book", "the last part of a list or mapping is an alias (*)"),
        (" [*loan]", "the last part of a list or mapping is an alias (*)"),
        (" [{PK: m, SK: m}, *loan]", "cases.0.then.1 is an alias (*)"),
        ("\n  # the loan\n  - {PK: m, SK: m}", "then has comments inside, which an empty list would lose"),
        (" [ # the loan\n  {PK: m, SK: m}]", "then has comments inside, which an empty list would lose"),
        (
            "\n  - x: 1\n    # the key\n    PK: BOOK#1\n    SK: INFO",
            "cases.0.then.0.x has comments below it, which would be lost",
        ),
    ],
)
def test_what_cannot_be_changed_alone_is_refused(updated: Update, tmp_path: Path, then: str, message: str) -> None:
    given = "&book {PK: BOOK#1, SK: INFO, words: &words {SS: [a]}}, &loan {PK: m, SK: n, x: 1}"
    text = f"cases:\n- about: a\n  given: [{given}]\n  then:{then}\n"
    with pytest.raises(UsageError, match=re.escape(f"cannot be updated: {message}; change the case by hand")):
        updated(text)
    assert (tmp_path / "a.projections.yaml").read_text() == text


def test_values_keep_their_types(updated: Update) -> None:
    values = """"1": 2, "n": "1e3", "null": "null", a: ["~", "", " x", "a: b", "# c", true, null], e: 1e-100,
      b: {$binary: "AAE="}, bs: {BS: [{$binary: "AAE="}, {$binary: "AAI="}]}, ns: {NS: [1, 2.5]}, m: {"N": "1"},
      d: 12345678901234567890123456789012345678, t: "2020-01-01", u: "\\u2028\\U0001F600" """
    updated(f"cases:\n- about: a\n  given: [{{PK: BOOK#1, SK: INFO, {values}}}]\n  then: [{{PK: BOOK#1, SK: INFO}}]\n")


def test_a_complete_case_gets_all_attributes_of_an_item_that_was_not_listed(updated: Update) -> None:
    text = updated(f"cases: [{{about: a, given: [{BOOK}], when: [put: {LOAN}], then: []}}]")
    loan = '{ PK: "MEMBER#m", SK: "LOAN#l1", isbn: "1", fine: 0.10000000000000000000000000000000000001, label: "m l1" }'
    assert loan in text, text
