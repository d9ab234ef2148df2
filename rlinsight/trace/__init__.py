"""The trace format: schema, recording, reading."""
