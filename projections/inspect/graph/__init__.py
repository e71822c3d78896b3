"""Pictures of rules: `model` has the content and Mermaid's text, `layers` and `layout` the positions, `page` the HTML."""
