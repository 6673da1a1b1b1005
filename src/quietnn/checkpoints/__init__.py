"""Files of weights of any size: read in chunks, checked before anything is written, replaced as a whole."""
