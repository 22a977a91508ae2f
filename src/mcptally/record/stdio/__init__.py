"""Record a stdio server: relay its pipes and supervise its process."""
