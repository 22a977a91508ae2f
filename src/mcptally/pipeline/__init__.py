"""One run from an archive to a store: plan, score each partition, publish."""
