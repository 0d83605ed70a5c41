"""The same path for tables larger than memory, in passes over chunks of rows."""
