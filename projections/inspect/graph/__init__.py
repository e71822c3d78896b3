"""Pictures of rules: `graph_model` has the content and Mermaid's text, `page` the HTML."""
