"""Where emulators differ from AWS: facts, and the cases of the contract that show them.

Such a case is expected to fail on that emulator, and the suite fails if it passes: then a new version is right, and its
line can go. A pattern is matched against `test name:case`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

WRONG: dict[str, dict[str, list[str]]] = {
    "memory": {},
    "dynamodb-local": {
        "does not check the type and the length of index keys": [
            "test_a_refused_update_changes_nothing:index-key-type",
            "test_a_refused_update_changes_nothing:index-key-*-long",
            "test_a_refused_update_changes_nothing:index-key-added",
        ],
        "gives numbers back as they were written; AWS normalizes them": ["test_numbers_are_normalized:*"],
    },
    "moto": {
        "does not check numbers": [
            "test_a_*:*39-digits*",
            "test_keys_have_limits:39-digits",
            "test_invalid_writes_are_refused_before_the_condition*:39-digits",
            "*:add-tiny",
            "*:*-overflow",
            "*:overflow",
            "*:underflow",
            "*:*no-number",
            "*:empty-number",
            "*:infinity",
            "*:spaced-number",
            "*:bad-number-in-condition",
        ],
        "adds numbers that are not integers as floats, or not at all": ["test_add:*1e-37*"],
        "compares elements of number sets as text": ["test_discard:({'NS':*", "*:same-number-twice"],
        "does not check sets, levels and operators": [
            "*:duplicates",
            "*:binary-twice",
            "*:empty-set",
            "*:empty-set-in-condition",
            "*:too-deep*",
            "*:expression-too-long",
            "*:too-many-operators",
        ],
        "does not check names, and takes a NULL that is false": ["*:no-name*", "*:long-name*", "*:null-is-false"],
        "does not check index keys": ["test_a_*:index-key-*"],
        "gives numbers back as they were written": ["test_numbers_are_normalized:*"],
        "does not check keys": ["test_keys_have_limits:*", "test_a_key_that_is_too_long_*"],
        "does not check the types of a query's key": ["test_a_query_gives_the_partition_key_*:*'N': '1'*"],
        "counts the size of values, not of the item": [
            "*:too-large-together",
            "test_an_item_may_have_400_kb*",
            "test_an_item_that_becomes_too_large*",
            "test_a_transaction_has_4_mb*",
        ],
        "checks what is static only after the condition": ["test_invalid_writes_are_refused_before_the_condition*:*"],
        "fails with TypeError where types differ": [
            "test_only_strings_numbers_and_binary_have_an_order:*",
            "test_a_write_is_refused_*:Below(path=('number',), value={'S': '99'})",
            "test_a_write_is_refused_*:Below(path=('tags',)*",
            "test_a_write_is_refused_*:Below(path=('text',), value={'N'*",
            "test_a_write_is_refused_*:Below(path=('yes',)*",
            "test_a_write_is_refused_*:Below(path=('~rule',)*",
            "test_a_guard_lets_a_write_pass_as_in_memory:version as number-older",
            "test_a_guard_lets_a_write_pass_as_in_memory:version as number-nested",
            "test_a_guard_lets_a_write_pass_as_in_memory:version as map-older",
            "test_a_guard_lets_a_write_pass_as_in_memory:version as map-nested",
            "test_guards_let_updates_among_others_pass_as_in_memory:older",
            "test_guards_let_updates_among_others_pass_as_in_memory:nested",
            "test_the_kind_of_an_item_is_judged_as_in_memory:a prefix",
            "test_the_kind_of_an_item_is_judged_as_in_memory:anything but",
            "test_the_kind_of_an_item_is_judged_as_in_memory:anything but a number",
            "test_the_kind_of_an_item_is_judged_as_in_memory:a range of texts",
            "test_the_kind_of_an_item_is_judged_as_in_memory:another text, or more",
            "test_the_kind_of_an_item_is_judged_as_in_memory:numeric",
        ],
        "has a missing attribute equal to NULL": [
            "test_the_kind_of_an_item_is_judged_as_in_memory:a list of values",
        ],
        "fails where DELETE meets no attribute": ["test_an_update_creates_the_item_whatever_it_does:"],
        "takes an empty transaction": ["test_a_transaction_has_1_to_100_actions:"],
        "has no cursor where a page is just full": ["test_a_page_that_is_just_full_has_a_cursor:"],
        "leaves out attributes that an index does not project, where DynamoDB refuses them or reads the table": [
            "test_global_index_refuses_attributes_that_it_does_not_project:*",
            "test_local_index_reads_what_it_does_not_project_from_the_table:",
        ],
    },
    "ministack": {
        "rounds sums to the 28 digits of Python's decimals": [
            "test_a_*:add-39-digits",
            "*:add-tiny",
            "test_add:*1e-37*",
        ],
        "compares elements of number sets as text": ["test_add:({'NS':*", "test_discard:({'NS':*"],
        "keeps number keys as text": ["test_numbers_as_keys_*"],
        "orders whatever has no order": ["test_only_strings_numbers_and_binary_have_an_order:*"],
        "gives a wrong operand in a transaction as a reason": [
            "test_a_bad_value_condemns_the_whole_transaction:add-number-to-text"
        ],
        "checks no paths, operators and empty sets in conditions": [
            "*:twice",
            "*:too-many-operators",
            "*:empty-set-in-condition",
            "*:empty-set-added",
        ],
        "checks sets in transactions not at all": ["test_a_bad_value_condemns_*:empty-set"],
        "checks what is static only after the condition": [
            "test_invalid_writes_are_refused_before_the_condition*:add-text",
            "test_invalid_writes_are_refused_before_the_condition*:empty-set",
        ],
        "does not check names": ["*:no-name*", "*:long-name*"],
        "takes an empty list at the level where lists are refused": ["*:too-deep-and-empty"],
        "does not check the length of keys": [
            "*:index-key-*-long",
            "test_keys_have_limits:*-long*",
            "test_a_key_that_is_too_long_*",
        ],
        "counts the size of an item otherwise": ["test_an_item_may_have_400_kb*"],
        "leaves out attributes that an index does not project, where DynamoDB refuses them or reads the table": [
            "test_global_index_refuses_attributes_that_it_does_not_project:*",
            "test_local_index_reads_what_it_does_not_project_from_the_table:",
        ],
    },
}


def reason(backend: str, test: str, case: str) -> str | None:
    """Why this case fails on this emulator; None where it must not."""
    for fact, patterns in WRONG[backend].items():
        if any(fnmatchcase(f"{test}:{case}", pattern) for pattern in patterns):
            return f"{backend} {fact}"
    return None
