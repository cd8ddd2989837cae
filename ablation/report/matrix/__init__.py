"""Whether a method pays, setting by setting and kind of text by kind of text, each against its own plain decoding."""
