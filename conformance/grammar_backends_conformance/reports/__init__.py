"""Shows reports: `page` is the ground of every HTML page of this distribution."""
