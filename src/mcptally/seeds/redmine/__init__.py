"""The response contract of the Redmine document."""
