"""Tables and columns of a store: declared once, with type, unit and meaning."""
