"""Pictures of rules: `model` has the content and Mermaid's text, `layout` the columns, `page` the HTML."""
