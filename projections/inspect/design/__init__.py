"""The table-design page: `model` gathers the data, `checklist` judges them, `markdown` writes the page."""
