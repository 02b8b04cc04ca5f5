"""What federations share, whatever carries their messages: kits, relay, sites."""
