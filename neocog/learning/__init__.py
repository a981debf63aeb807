"""Learning: from labelled digits to the planes of a model, without gradients."""
