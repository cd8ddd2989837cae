"""The figures of the book, which scripts/draw_book.py draws."""
