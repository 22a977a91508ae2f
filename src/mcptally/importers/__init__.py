"""Converts other programs' logs to transcripts; may import `record` and lower layers.

file → detect → formats/NAME.read → Items → (sorted by time) → TranscriptBuilder → Packer
"""

from mcptally.importers.registry import FORMATS
from mcptally.importers.run import Imported, Outcome, import_logs
from mcptally.importers.source import Envelope

__all__ = ["FORMATS", "Envelope", "Imported", "Outcome", "import_logs"]
