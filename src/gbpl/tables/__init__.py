"""Tables of any library and any file format: read, encoded, written."""
