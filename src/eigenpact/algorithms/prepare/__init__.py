"""How sites agree on what is done to their rows first: one file for each preparer."""
