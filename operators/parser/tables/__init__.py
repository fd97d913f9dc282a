"""Files of tables, a module for each format: its `TableFiles` (operators/parser/formats.py) reads them."""
