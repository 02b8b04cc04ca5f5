"""One file = one method.  Nothing here reads a file, prints, or knows an engine."""
