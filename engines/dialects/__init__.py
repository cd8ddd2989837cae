"""One file a server: how it is asked, what it says of its rounds, and how it is told to speculate."""
