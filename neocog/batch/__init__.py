"""Reading many pictures: sources, the reader itself, records and sinks."""
