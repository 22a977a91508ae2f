"""Client configuration files: put the recorder before their servers."""
