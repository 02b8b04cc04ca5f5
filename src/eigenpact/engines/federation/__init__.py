"""What federations share, whatever the engine: kits, relay, sites."""
