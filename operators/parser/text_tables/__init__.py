"""Rows of text behind a header (CSV, TSV): their bounds, their fields, and the values that these say."""
