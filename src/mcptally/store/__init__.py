"""Files of a store: Parquet tables and the manifest that lists them."""
