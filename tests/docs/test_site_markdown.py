"""Pages have the same lists and tables on the site as on GitHub."""

from __future__ import annotations

from site_markdown import for_site

STEPS = """\
1. Do:

   ```sh
   a

     b
   ```

2. Then
   this:
   - one
"""


def test_parts_of_a_numbered_step_are_indented_by_four_spaces() -> None:
    assert for_site(STEPS) == STEPS.replace("\n   ", "\n    ")


def test_parts_of_a_bullet_are_indented_by_four_spaces() -> None:
    page = "- a\n\n  ```sh\n  b\n  ```\n- c\n\nText\n  d\n"
    assert for_site(page) == "- a\n\n    ```sh\n    b\n    ```\n- c\n\nText\n  d\n"


def test_code_outside_of_lists_is_unchanged() -> None:
    page = "```yaml\n- a:\n  b: 1\n   c\n```\n\n   text\n"
    assert for_site(page) == page


def test_a_list_ends_at_text_without_indent() -> None:
    page = "1. a\n\nText:\n\n   b\n"
    assert for_site(page) == page


def test_a_bar_in_code_in_a_table_has_no_backslash() -> None:
    assert for_site("| `a\\|b` | c \\| d |\n") == "| `a|b` | c \\| d |\n"
    assert for_site("`a\\|b`\n") == "`a\\|b`\n"


def test_bullets_after_a_numbered_list_are_another_list() -> None:
    assert for_site("1. a\n\n- b\n- c\n") == "1. a\n\n<!-- -->\n\n- b\n- c\n"
    page = "1. a\n\nText:\n\n- b\n1. c\n"
    assert for_site(page) == page
