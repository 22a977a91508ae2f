"""Foreign log formats, one module per format."""
