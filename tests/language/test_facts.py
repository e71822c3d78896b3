"""What a rule writes and how, in the words of the rule file."""

from __future__ import annotations

from typing import Any

from projections.language.facts import origins
from projections.language.loader import loads

RULES = """\
table: {key: [PK, SK]}
entities:
  Visit: {key: {PK: "PET#{pet}", SK: "VISIT#{visit}"}}
  Listed: {key: {PK: "CLINIC#{clinic}", SK: "VISIT#{visit}"}, match: {kind: Listed, paid: true, no: [{">": 0}]}}
  Day: {key: {PK: "DAY#{day}", SK: DAY}, match: {kind: Day}, derived: true}
  Clinic: {key: {PK: "CLINIC#{clinic}", SK: CLINIC}, match: {kind: Clinic}}
projections:
  listed: {from: Visit, copy: {into: Listed, attributes: [fee], values: {open: false}}}
  days: {from: Visit, aggregate: {into: Day, set: {visits: count}}}
  fees: {from: Visit, aggregate: {into: Day, set: {fees: sum(fee)}}}
  clinics: {from: Visit, aggregate: {into: Clinic, set: {visits: count}}}
"""


def test_an_item_that_rules_create_has_the_constants_of_its_match() -> None:
    typed: Any = loads(RULES).completed()
    how = {entity: {name: one.how for name, one in of.items()} for entity, of in origins(typed).items()}
    assert how["Listed"] == {"fee": "Visit.fee", "open": "false", "kind": '"Listed"', "paid": "true"}
    assert how["Day"] == {"visits": "count of Visit", "kind": '"Day"', "fees": "sum(fee) of Visit"}
    assert origins(typed)["Day"]["kind"].rule == "days"
    assert how["Clinic"] == {"visits": "count of Visit"}, "the application creates it, with its own `kind`"
