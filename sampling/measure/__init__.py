"""What runs are compared by: metrics, plain decoding beside them, and where two outputs part."""
