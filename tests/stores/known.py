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
