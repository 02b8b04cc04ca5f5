"""Our own hostile coordinator, against the end that a site really has: ``make attack`` runs it for long, a test for short."""
