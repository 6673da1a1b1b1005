"""Records to tables, figures and one self-contained web page. Nothing here needs torch."""
