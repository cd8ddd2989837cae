"""What a run leaves behind: records, their columns and files, the manifest, traces."""
