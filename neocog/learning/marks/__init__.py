"""Marks that are no digits: letters, signs, strokes, spots, and what digits leave behind."""
