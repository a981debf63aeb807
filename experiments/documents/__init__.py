"""Documents that people bring: dates, amounts, tables, forms; as PDF and HEIC."""
