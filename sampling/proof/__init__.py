"""Whether decoding is lossless: the tests behind `infer.py selftest`."""
