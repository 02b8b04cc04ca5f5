"""Methods of which nothing exact leaves a site: every sum has noise in it that hides any single row."""
