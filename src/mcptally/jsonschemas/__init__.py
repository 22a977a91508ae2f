"""JSON Schemas of strangers: validate values by them within limits, and compare them."""
