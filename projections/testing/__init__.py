"""Tests of rules: given items, when the application writes, then items. The rules run in the real engine, in memory.

In pytest, by a fixture (the plugin loads itself; nothing to configure but which rules, see `plugin`):

    def test_a_like_counts(projections):
        projections.given({"PK": "USER#ada", "SK": "POST#2024#p1", "title": "Notes"})
        projections.put({"PK": "USER#bob", "SK": "LIKE#POST#p1"})
        projections.then({"PK": "POST#p1", "SK": "METADATA", "title": "Notes", "likeCount": 1})

    def test_nothing_that_lambda_does_can_break_it(projections):
        projections.assert_simulation(histories=200)

or as files `*.projections.yaml`, each case a test:

    rules: rules.yaml
    simulate: 200
    cases:
      - about: a like counts
        given: [{PK: USER#ada, SK: "POST#2024#p1", title: Notes}]
        when: [{put: {PK: USER#bob, SK: "LIKE#POST#p1"}}]
        then: [{PK: "POST#p1", SK: METADATA, title: Notes, likeCount: 1}]

`then` lists the items on which something is derived. All others must be as the application wrote them.
"""
