"""A page in the browser, and an HTTP API: pictures in, records out, corrections kept."""
