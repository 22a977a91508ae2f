"""Write recordings: events, segments, compression and retention."""
