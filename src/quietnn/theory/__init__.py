"""Pure formulas on floats and arrays: the family of denoisers and the paper's two small networks."""
