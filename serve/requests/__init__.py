"""From the body of a request to the texts that it orders."""
