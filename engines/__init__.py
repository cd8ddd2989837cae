"""Other engines behind the workbench's own protocol: what they are asked, and what they say of their rounds."""
